package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const chatPath = "/v1/chat/completions"

// talk is one response, with the clients that read it.
type talk struct {
	*soak
	ctx    context.Context
	rng    *rand.Rand
	name   string // of the response: its call and its key
	tokens int
	fault  llmsim.Fault
	id     string // as we have named it
	failed bool   // an attempt to ask may have failed before any output
}

// faults are what the backend does, as often as they stand here.
var faults = []llmsim.Fault{
	"", "", "", "", "", "", "", "", "", "",
	llmsim.FaultDie, llmsim.FaultEnd, llmsim.FaultError, llmsim.FaultErrorDone, llmsim.FaultMalformed,
	llmsim.FaultStatus, llmsim.FaultNoDone, llmsim.FaultCrash, llmsim.FaultHang, llmsim.FaultSlowHeaders,
}

// errRefused says that there was no place, or that the backend has refused.
var errRefused = errors.New("refused")

// run is the life of one response. Its error is a broken invariant.
func (k *talk) run() error {
	k.tokens = 20 + k.rng.IntN(300)
	k.fault = faults[k.rng.IntN(len(faults))]
	resumable := k.rng.IntN(4) > 0
	header := http.Header{
		callHeader:            {k.name},
		llmsim.HeaderTokens:   {strconv.Itoa(k.tokens)},
		llmsim.HeaderInterval: {time.Duration(k.rng.IntN(int(5 * time.Millisecond))).String()},
		llmsim.HeaderFault:    {string(k.fault)},
		llmsim.HeaderFaultAt:  {strconv.Itoa(k.rng.IntN(k.tokens + 1))},
	}
	if k.fault == "" {
		header.Set(llmsim.HeaderFault, "none")
	}
	ask := k.bound
	if resumable {
		header.Set("Idempotency-Key", k.name)
		ask = k.resumable
	}
	err := ask(header)
	if errors.Is(err, errRefused) {
		k.count("refused")
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s (%d tokens, fault %q, resumable %t): %w", k.name, k.tokens, k.fault, resumable, err)
	}
	return k.checkCalls()
}

// checkCalls checks that there was one upstream call.
func (k *talk) checkCalls() error {
	n, err := k.backend.calls(k.ctx, k.name)
	if err != nil {
		return nil //nolint:nilerr // the end of the run
	}
	if n > 1 && !k.failed {
		return fmt.Errorf("%s: %d upstream calls", k.name, n)
	}
	return nil
}

// reading is how far one client has got.
type reading struct {
	last int // index of the last event
	text string
}

// lengths are how long the text of so many tokens is.
var lengths = sync.OnceValue(func() []int {
	list := make([]int, 400)
	for n := range list {
		list[n] = len(llmsim.Text(n))
	}
	return list
})

// errCut is the end of a body that is none.
var errCut = errors.New("cut")

// Ends of a body beside those of a response.
const (
	left      = "left"      // the client has had enough
	reconnect = "reconnect" // it was told to come back
)

// take takes one frame. end is not empty where it is the last one.
func (r *reading) take(f rig.Frame, tokens int) (end string, err error) {
	var data struct {
		Text         string
		FinishReason string `json:"finish_reason"`
		Error        rig.Error
	}
	if err := json.Unmarshal([]byte(f.Data), &data); err != nil {
		return "", fmt.Errorf("frame %+v: %w", f, err)
	}
	if f.Event == "reconnect" {
		if f.Index() != r.last {
			return "", fmt.Errorf("frame %+v after the index %d", f, r.last)
		}
		return reconnect, nil
	}
	if f.Index() <= r.last || f.Event != "" && f.Index() != r.last+1 {
		return "", fmt.Errorf("frame %+v after the index %d", f, r.last)
	}
	r.last = f.Index()
	switch f.Event {
	case "":
		r.text += data.Text
		if r.last > tokens || len(r.text) != lengths()[r.last] {
			return "", fmt.Errorf("%d bytes of text at the index %d: an event is lost or repeated", len(r.text), r.last)
		}
		return "", nil
	case "done":
		return data.FinishReason, nil
	case "error":
		return data.Error.Code, nil
	}
	return "", fmt.Errorf("frame %+v", f)
}

// read reads a body on, at most so many frames.
func (k *talk) read(body io.Reader, r *reading, frames int) (end string, err error) {
	fr := rig.NewFrameReader(body)
	for range frames {
		f, err := fr.Next()
		switch {
		case err != nil && (k.ctx.Err() != nil || k.exiting.Load()):
			return left, nil
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return "", fmt.Errorf("a clean end after the index %d", r.last)
		case err != nil:
			return "", fmt.Errorf("%w after the index %d: %w", errCut, r.last, err)
		}
		end, err := r.take(f, k.tokens)
		if err != nil || end != "" {
			return end, err
		}
		if k.rng.IntN(100) == 0 {
			k.count("stalls")
			time.Sleep(time.Duration(k.rng.IntN(300)) * time.Millisecond)
		}
	}
	return left, nil
}

// check checks what a client has read at the end of the response.
func (k *talk) check(r *reading, end string) error {
	k.count("end " + end)
	if r.text != llmsim.Text(k.tokens)[:len(r.text)] {
		return errors.New("the text is another one")
	}
	switch {
	case end == "stop" && len(r.text) != lengths()[k.tokens]:
		return fmt.Errorf("a good end after %d of %d bytes", len(r.text), lengths()[k.tokens])
	case k.fault == "" && end != "stop" && end != "cancelled" && end != "draining":
		return fmt.Errorf("no fault, and the end is %s at the index %d", end, r.last)
	}
	return nil
}

// bound asks for a response that is the client's alone, and perhaps leaves.
func (k *talk) bound(header http.Header) error {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	resp, err := k.do(ctx, http.MethodPost, "/bound"+chatPath, header)
	if err != nil {
		return k.unconnected(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errRefused
	}
	frames := 1 << 20
	if k.rng.IntN(4) == 0 {
		frames = k.rng.IntN(k.tokens)
	}
	r := new(reading)
	end, err := k.read(resp.Body, r, frames)
	if err != nil || end == left {
		return err
	}
	return k.check(r, end)
}

// unconnected is for a request without an answer: at a reload a connection may be
// closed before its request was read.
func (k *talk) unconnected(err error) error {
	if k.ctx.Err() == nil && !k.exiting.Load() {
		k.count("without an answer")
		k.failed = true
		for _, closed := range []string{"EOF", "reset", "server closed idle connection"} {
			if strings.Contains(err.Error(), closed) {
				return errRefused
			}
		}
		return err
	}
	return errRefused
}

// resumable asks for a response that can be resumed, and reads it with all that a
// client may do in between.
func (k *talk) resumable(header http.Header) error {
	r := new(reading)
	for attempt := 0; ; attempt++ {
		resp, err := k.ask(header, r)
		if err != nil {
			if attempt > 0 && errors.Is(err, errRefused) && k.id != "" && !k.exiting.Load() && k.ctx.Err() == nil {
				continue
			}
			return err
		}
		if id := resp.Header.Get("X-Response-Id"); k.id == "" {
			k.id = id
		}
		end, err := k.visit(resp, r)
		_ = resp.Body.Close()
		switch {
		case errors.Is(err, errCut) && k.id != "":
			k.count("cut by the server")
			return err
		case err != nil:
			return err
		case end == left && (k.ctx.Err() != nil || k.exiting.Load()):
			return nil
		case end == left || end == reconnect:
			k.count(end)
		default:
			if err := k.check(r, end); err != nil {
				return err
			}
			return k.again(r)
		}
	}
}

// ask makes the first request, or comes back in one of the ways that there are.
func (k *talk) ask(header http.Header, r *reading) (*http.Response, error) {
	var resp *http.Response
	var err error
	cursor := fmt.Sprintf("%s:%d", k.id, r.last)
	switch way := k.rng.IntN(3); {
	case k.id == "":
		resp, err = k.do(k.ctx, http.MethodPost, chatPath, header)
	case way == 0:
		resp, err = k.do(k.ctx, http.MethodPost, chatPath, http.Header{"Last-Event-ID": {cursor}})
	case way == 1:
		resp, err = k.do(k.ctx, http.MethodGet, "/llm/streams/"+k.id, http.Header{"Last-Event-ID": {cursor}})
	default:
		resp, err = k.do(k.ctx, http.MethodGet, "/llm/streams/"+k.id+"?last_event_id="+cursor, nil)
	}
	if err != nil {
		return nil, k.unconnected(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if k.id != "" && r.last > 0 && !k.exiting.Load() && k.ctx.Err() == nil {
		return nil, fmt.Errorf("coming back to %s: status %d %s", cursor, resp.StatusCode, body)
	}
	k.id = ""
	return nil, errRefused
}

// visit reads a response on, until the client leaves it or does something else.
func (k *talk) visit(resp *http.Response, r *reading) (end string, err error) {
	frames := 1 << 20
	what := k.rng.IntN(8)
	if what < 5 {
		frames = 1 + k.rng.IntN(k.tokens)
	}
	if end, err = k.read(resp.Body, r, frames); err != nil || end != left {
		return end, err
	}
	switch {
	case k.ctx.Err() != nil || k.id == "":
	case what == 0:
		k.count("cancels")
		k.get(http.MethodPost, "/llm/cancel/"+k.id)
	case what == 1:
		return end, k.snapshot()
	case what == 2:
		return end, k.companion()
	}
	return end, nil
}

func (k *talk) get(method, path string) (status int, body []byte) {
	resp, err := k.do(k.ctx, method, path, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ = io.ReadAll(resp.Body)
	return resp.StatusCode, body
}

// snapshot checks a snapshot.
func (k *talk) snapshot() error {
	k.count("snapshots")
	status, body := k.get(http.MethodGet, "/llm/streams/"+k.id)
	if status != http.StatusOK {
		return nil // the connection, or the exit
	}
	var s struct{ Text string }
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("snapshot: %w in %.200q", err, body)
	}
	if !strings.HasPrefix(llmsim.Text(k.tokens), s.Text) {
		return errors.New("the text of the snapshot is another one")
	}
	return nil
}

// companion follows the response from its start, as a second device.
func (k *talk) companion() error {
	k.count("companions")
	resp, err := k.do(k.ctx, http.MethodGet, "/llm/streams/"+k.id, nil)
	if err != nil {
		return nil //nolint:nilerr // it comes another time
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	r := new(reading)
	end, err := k.read(resp.Body, r, 1<<20)
	if err != nil || end == left || end == reconnect {
		return err
	}
	return k.check(r, end)
}

// again reads the whole response once more, after its end: it is the same.
func (k *talk) again(r *reading) error {
	if r.last < 2 || k.rng.IntN(3) > 0 {
		return nil
	}
	k.count("read again")
	before := *r
	resp, err := k.do(k.ctx, http.MethodGet, "/llm/streams/"+k.id, nil)
	if err != nil {
		return nil //nolint:nilerr // a reload, or the exit
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil // it is over
	}
	second := new(reading)
	end, err := k.read(resp.Body, second, 1<<20)
	if err != nil || end == left || end == reconnect {
		return err
	}
	if *second != before {
		return fmt.Errorf("read again, it ends at the index %d and not at %d", second.last, before.last)
	}
	return nil
}

// do sends a request.
func (k *talk) do(ctx context.Context, method, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+k.addr+path, strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if method == http.MethodGet {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	return k.client.Do(req)
}
