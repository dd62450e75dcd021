// Package budget measures what each thing costs that a client or a backend can make
// us hold: one of it, and ten thousand.
package budget

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	llmstream "github.com/caddy-llmstream/caddy-llmstream"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const chatPath = "/v1/chat/completions"

// thing is something that is held.
type thing struct {
	name    string
	bound   string // what bounds how many there are, and how large
	global  string // the global options, as JSON
	options string // those of the handler, as JSON
	header  func(i int) http.Header
	follows string                // the control endpoint that is asked, instead of the handler
	body    func(i int) io.Reader // what comes of an upload that stays behind
	answer  func(i int) []string  // what the backend says; it stays open unless ends
	coding  string
	ends    bool
	wait    time.Duration // after the end, until it is what it is to be
	limit   int64         // what one of many may cost, in bytes: generous
	total   int64         // what all may cost, where there is such a bound
}

const kept = `{"resume":{"prefix":"/llm","keep":"1h","owner":"{http.request.header.X-User}","channel":"{http.request.header.X-Chat}"}}`

// named is a header with one field that is different for each.
func named(field string, length int) func(i int) http.Header {
	return func(i int) http.Header {
		return http.Header{"X-User": {"u"}, field: {strings.Repeat("n", length) + strconv.Itoa(i)}}
	}
}

func asUser(int) http.Header { return http.Header{"X-User": {"u"}} }

func words(n int) []string {
	list := []string{strings.Repeat(rig.Chunk(" word"), n)}
	return list
}

func says(pieces ...string) func(int) []string { return func(int) []string { return pieces } }

// saysNumbered is for a backend that puts its number in the place of N.
func saysNumbered(pieces ...string) func(int) []string {
	return func(i int) []string {
		list := make([]string, len(pieces))
		for k, piece := range pieces {
			list[k] = strings.ReplaceAll(piece, "NUMBER", strconv.Itoa(i))
		}
		return list
	}
}

var things = []thing{
	{name: "open response", bound: "max_clients, max_streams", answer: says(words(1)...), limit: 24 << 10},
	{name: "open response, slow_client drop", bound: "max_clients, max_streams", options: `{"slow_client":"drop"}`, answer: says(words(1)...), limit: 40 << 10},
	{name: "open response, resume", bound: "max_clients, max_streams", options: kept, header: asUser, answer: says(words(1)...), limit: 40 << 10},
	{name: "open response, its backend compresses", bound: "max_streams", coding: "gzip", answer: says(zipped(rig.Chunk("a"))), limit: 120 << 10},
	{
		name: "open response, a key of per", bound: "max_clients, max_streams", options: `{"max_streams":{"per":"{http.request.header.X-Key}","per_max":1}}`,
		header: named("X-Key", 200), answer: says(words(1)...), limit: 24 << 10,
	},
	{name: "request that waits in a queue", bound: "queue", options: `{"max_streams":{"max":1,"queue":1000000,"wait":"1h"}}`, answer: says(words(1)...), limit: 24 << 10},
	{
		name: "request body, a byte of it", bound: "max_clients, timeouts read", options: `{"max_streams":{"max":1000000}}`,
		body: func(int) io.Reader { return strings.NewReader("{") }, limit: 24 << 10,
	},
	{
		name: "request body, 8 KiB of it", bound: "max_memory, max_body, timeouts read", options: kept, header: asUser,
		body: func(int) io.Reader { return strings.NewReader(strings.Repeat("x", 8<<10)) }, limit: 48 << 10,
	},
	{name: "client that follows a response", bound: "max_clients", options: kept, header: asUser, follows: "/llm/streams/", answer: says(words(1)...), limit: 40 << 10},
	{
		name: "client that attaches by key", bound: "max_clients", options: kept,
		header: func(int) http.Header { return http.Header{"X-User": {"u"}, "Idempotency-Key": {"k"}} }, answer: says(words(1)...), limit: 40 << 10,
	},
	{name: "listener, each on a channel", bound: "max_clients", options: kept, header: asUser, follows: "/llm/channels/c", limit: 40 << 10},
	{name: "kept response of 1 word", bound: "max_memory, keep", options: kept, header: asUser, answer: says(append(words(1), rig.Stop)...), ends: true, limit: 8 << 10},
	{name: "kept response of 200 words", bound: "max_memory, keep, max_size", options: kept, header: asUser, answer: says(append(words(200), rig.Stop)...), ends: true, limit: 32 << 10},
	{
		name: "the same, max_memory 8MiB", bound: "max_memory", global: `{"max_memory":8388608}`, options: kept, header: asUser,
		answer: says(append(words(200), rig.Stop)...), ends: true, limit: 32 << 10, total: 16 << 20,
	},
	{name: "kept response, a key of 8 KB", bound: "max_memory; a hash", options: kept, header: named("Idempotency-Key", 8000), answer: says(append(words(1), rig.Stop)...), ends: true, limit: 8 << 10},
	{name: "kept response, a channel of 8 KB", bound: "max_memory; a hash", options: kept, header: named("X-Chat", 8000), answer: says(append(words(1), rig.Stop)...), ends: true, limit: 8 << 10},
	{name: "kept response, an owner of 8 KB", bound: "max_memory; a hash", options: kept, header: named("X-User", 8000), answer: says(append(words(1), rig.Stop)...), ends: true, limit: 8 << 10},
	{
		name: "expired response (its id)", bound: "keep, again", options: strings.Replace(kept, "1h", "2s", 1), header: asUser,
		answer: says(append(words(1), rig.Stop)...), ends: true, wait: 2500 * time.Millisecond, limit: 4 << 10,
	},
	{name: "half an event of 16 KiB", bound: "max_event", answer: says(rig.Chunk("a"), "data: "+strings.Repeat("x", 16<<10)), limit: 64 << 10},
	{
		name: "kept response, a model of 20 KB", bound: "max_memory; cut at 256 bytes", options: kept, header: asUser,
		answer: saysNumbered(strings.Replace(rig.Chunk("a"), `"m"`, `"NUMBER`+strings.Repeat("m", 20_000)+`"`, 1), rig.Stop), ends: true, limit: 8 << 10,
	},
	{
		name: "kept response, a finish reason of 20 KB", bound: "max_memory; cut at 256 bytes", options: kept, header: asUser,
		answer: saysNumbered(rig.Chunk("a"), strings.Replace(rig.Stop, `"stop"`, `"NUMBER`+strings.Repeat("m", 20_000)+`"`, 1)), ends: true, limit: 8 << 10,
	},
	{
		name: "kept response, an error of 20 KB", bound: "max_memory; cut at 16 KiB", options: kept, header: asUser,
		answer: saysNumbered(rig.Chunk("a"), `data: {"error":{"type":"t","message":"NUMBER`+strings.Repeat("m", 20_000)+`"}}`+"\n\n"), ends: true, limit: 24 << 10,
	},
	{
		name: "label of a model of 20 KB", bound: "1,000 models, then `other`", global: `{"model_label":true}`,
		answer: saysNumbered(strings.Replace(rig.Chunk("a"), `"m"`, `"NUMBER`+strings.Repeat("m", 20_000)+`"`, 1), rig.Stop), ends: true, limit: 8 << 10, total: 24 << 20,
	},
	{name: "open response, 20 open tool calls", bound: "max_streams, max_size", options: `{"include":["tool_calls"]}`, answer: says(toolCalls(20)), limit: 96 << 10},
	{name: "open response, 20 choices", bound: "max_streams, max_size", answer: says(choices(20)), limit: 96 << 10},
}

func toolCalls(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"call_%d","function":{"name":"f","arguments":"{"}}]}}]}`+"\n\n", i, i)
	}
	return b.String()
}

func choices(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, `data: {"choices":[{"index":%d,"delta":{"content":"a"}}]}`+"\n\n", i)
	}
	return b.String()
}

// house is a handler and its control endpoints, without a server.
type house struct {
	handler *llmstream.Handler
	control *llmstream.Control
	ctx     context.Context
	leave   context.CancelFunc // of all clients
	serving sync.WaitGroup
}

func newHouse(t *testing.T, th *thing) *house {
	t.Helper()
	cfg := new(caddy.Config)
	if th.global != "" {
		cfg.AppsRaw = caddy.ModuleMap{"llm_stream": json.RawMessage(th.global)}
	}
	ctx, err := caddy.ProvisionContext(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{handler: new(llmstream.Handler), control: new(llmstream.Control)}
	h.ctx, h.leave = context.WithCancel(context.Background())
	options := []byte(cmp.Or(th.options, "{}"))
	if th.options == "" {
		options = []byte("{}")
	}
	if err := errors.Join(json.Unmarshal(options, h.handler), json.Unmarshal([]byte(kept), h.control),
		h.handler.Provision(ctx), h.handler.Validate(), h.control.Provision(ctx), h.control.Validate()); err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("llm_stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(caddy.App).Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.leave()
		h.serving.Wait()
		if err := errors.Join(h.handler.Cleanup(), h.control.Cleanup(), app.(caddy.CleanerUpper).Cleanup()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// connection is what a client's answer goes to. It takes everything.
type connection struct{ header http.Header }

func (c *connection) Header() http.Header              { return c.header }
func (c *connection) WriteHeader(int)                  {}
func (c *connection) FlushError() error                { return nil }
func (c *connection) SetWriteDeadline(time.Time) error { return nil }
func (c *connection) SetReadDeadline(time.Time) error  { return nil }
func (c *connection) Write(p []byte) (int, error)      { return len(p), nil }

// upload is a body that stays behind.
type upload struct {
	io.Reader
	ctx context.Context //nolint:containedctx // it is what ends the read
}

func (u *upload) Read(p []byte) (int, error) {
	if n, err := u.Reader.Read(p); err == nil {
		return n, nil
	}
	<-u.ctx.Done()
	return 0, io.ErrUnexpectedEOF
}

func (u *upload) Close() error { return nil }

// request makes one request, as Caddy's server does.
func (h *house) request(method, path string, body io.Reader, header http.Header, c *connection) (http.ResponseWriter, *http.Request) {
	idle := &caddyhttp.IdleTimeoutWriter{
		ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: c},
		Ctrl:                  http.NewResponseController(c),
		Deadline:              caddyhttp.IdleDeadline{Timeout: time.Minute},
		Logger:                zap.NewNop(),
	}
	r := httptest.NewRequestWithContext(h.ctx, method, path, body)
	maps.Copy(r.Header, header)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), idle, nil)
	return idle, r.WithContext(caddyhttp.ContextWithIdleTimeouts(r.Context(), nil, idle))
}

// zipped compresses the beginning of a body.
func zipped(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Flush()
	return b.String()
}

// serve serves one request. It returns when that is over.
func (h *house) serve(th *thing, i int) {
	header := make(http.Header)
	if th.header != nil {
		header = th.header(i)
	}
	var body io.Reader = strings.NewReader(`{"stream":true}`)
	if th.body != nil {
		body = &upload{th.body(i), h.ctx}
	}
	w, r := h.request(http.MethodPost, chatPath, body, header, &connection{header: make(http.Header)})
	defer func() { _ = recover() }() // a connection that is aborted, in the end
	_ = h.handler.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if th.coding != "" {
			w.Header().Set("Content-Encoding", th.coding)
		}
		for _, piece := range th.answer(i) {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
		if !th.ends {
			<-r.Context().Done()
		}
		return nil
	}))
}

// follow asks a control endpoint. It returns when that is over.
func (h *house) follow(th *thing, path string, i int) {
	if strings.HasSuffix(path, "/c") {
		path += strconv.Itoa(i)
	}
	w, r := h.request(http.MethodGet, path, http.NoBody, th.header(i), &connection{header: make(http.Header)})
	defer func() { _ = recover() }() // a connection that is aborted, in the end
	_ = h.control.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
}

// endpoint returns what clients of a control endpoint ask for: where it is a
// response, one that is begun for them. It is empty for those of the handler.
func (h *house) endpoint(th *thing) string {
	if !strings.HasSuffix(th.follows, "streams/") {
		return th.follows
	}
	id := make(chan string)
	h.serving.Go(func() { h.serveShared(th, id) })
	return th.follows + <-id
}

// begin makes those of a thing that have the numbers from one to another.
func (h *house) begin(th *thing, path string, from, to int) {
	for i := from; i < to; i++ {
		switch {
		case th.ends:
			h.serve(th, i)
		case path != "":
			h.serving.Go(func() { h.follow(th, path, i) })
		default:
			h.serving.Go(func() { h.serve(th, i) })
		}
	}
	time.Sleep(th.wait)
}

// identified tells the id of the response when its header is sent.
type identified struct {
	http.ResponseWriter
	id chan<- string
}

// WriteHeader implements http.ResponseWriter.
func (w *identified) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.id <- w.Header().Get("X-Response-Id")
}

// Unwrap is for http.ResponseController.
func (w *identified) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveShared serves a response that others follow, and tells its id.
func (h *house) serveShared(th *thing, id chan<- string) {
	w, r := h.request(http.MethodPost, chatPath, strings.NewReader(`{"stream":true}`), th.header(0), &connection{header: make(http.Header)})
	defer func() { _ = recover() }() // a connection that is aborted, in the end
	_ = h.handler.ServeHTTP(&identified{w, id}, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, th.answer(0)[0])
		<-r.Context().Done()
		return nil
	}))
}

// level is what the process holds.
type level struct{ heap, stacks int64 }

// levelNow waits until what is held does not change any more.
func levelNow() (l level) {
	for range 20 {
		before := l
		runtime.GC()
		runtime.GC() // what the first has only found
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		l = level{int64(m.HeapAlloc), int64(m.StackInuse)}
		if d := max(l.heap-before.heap, before.heap-l.heap); d < max(1024, l.heap/1000) {
			break
		}
		time.Sleep(30 * time.Millisecond)
	}
	return l
}

// TestBudget makes one and many of each thing. BUDGET is how many; docs/budget.md
// has the table for 10,000.
func TestBudget(t *testing.T) {
	how := os.Getenv("BUDGET")
	if how == "" {
		t.Skip("what is measured decides no test run: make budget")
	}
	many, err := strconv.Atoi(how)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	_, _ = fmt.Fprintf(&table, "| held | one | %d | each of %d | stack of each | bound by |\n|---|---:|---:|---:|---:|---|\n", many, many)
	for i := range things {
		th := &things[i]
		t.Run(th.name, func(t *testing.T) {
			one, all := measured(t, i, many)
			each := all.heap / int64(many)
			_, _ = fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s |\n", th.name, size(one.heap), size(all.heap), size(each), size(all.stacks/int64(many)), th.bound)
			if each > th.limit {
				t.Errorf("%d of them cost %d bytes each, %d are allowed", many, each, th.limit)
			}
			if th.total > 0 && all.heap > th.total {
				t.Errorf("%d of them cost %d bytes together, %d are allowed", many, all.heap, th.total)
			}
			if all.heap <= 0 {
				t.Errorf("%d of them cost %d bytes: that is no measurement", many, all.heap)
			}
		})
	}
	t.Log("\n" + table.String())
}

// measureEnv makes this binary measure one thing, in a process of its own: nothing
// that another has left behind is in the way.
const measureEnv = "LLMSTREAM_BUDGET_MEASURE"

// measured returns what one and many of a thing cost.
func measured(t *testing.T, thing, many int) (one, all level) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMeasure$", "-test.v") //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", measureEnv, thing, many))
	out, err := cmd.CombinedOutput()
	_, line, found := strings.Cut(string(out), "measured ")
	if err != nil || !found {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := fmt.Sscan(line, &one.heap, &one.stacks, &all.heap, &all.stacks); err != nil {
		t.Fatal(err)
	}
	return one, all
}

// TestMeasure is the process that measures.
func TestMeasure(t *testing.T) {
	var which, many int
	if _, err := fmt.Sscan(os.Getenv(measureEnv), &which, &many); err != nil {
		t.Skip("TestBudget runs it")
	}
	th := &things[which]
	h := newHouse(t, th)
	path := h.endpoint(th)
	if th.ends { // what is made once and stays
		warm := *th
		warm.wait = 0
		h.begin(&warm, path, -20, 0)
	}
	before := levelNow()
	h.begin(th, path, 0, 1)
	first := levelNow()
	h.begin(th, path, 1, many)
	last := levelNow()
	runtime.KeepAlive(h)
	fmt.Println("measured", first.heap-before.heap, first.stacks-before.stacks, last.heap-before.heap, last.stacks-before.stacks)
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", max(n, 0))
	case n < 10_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
