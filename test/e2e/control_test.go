package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

func cancellable(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// An id that was never given is 404, whatever its form and whatever is asked.
func TestUnknownResponses(t *testing.T) {
	c, backend := keep(t, "", whole3)
	for name, id := range map[string]string{
		"unknown":   fanout.NewID(),
		"short":     "x",
		"long":      strings.Repeat("x", 23),
		"a path":    fanout.NewID() + "/x",
		"escaped":   "%2Fx",
		"non-ASCII": "%C3%A4",
	} {
		for what, q := range map[string]request{
			"follow":   get("/llm/streams/" + id),
			"snapshot": get("/llm/streams/"+id, "Accept", "application/json"),
			"DELETE":   {method: "DELETE", path: "/llm/streams/" + id},
			"cancel":   {method: "POST", path: "/llm/cancel/" + id},
		} {
			refused(t, what+" "+name, q.do(t, c), 404, "unknown_response")
		}
	}
	for what, path := range map[string]string{"an unknown key": "?idempotency_key=k", "an empty key": "?idempotency_key=", "no key": ""} {
		refused(t, what, request{method: "POST", path: "/llm/cancel" + path}.do(t, c), 404, "unknown_response")
	}
	equal(t, "upstream calls", backend.Calls.Load(), 0)
}

// attempts is everything that can be done with a response's id.
func attempts(id string, header ...string) map[string]request {
	all := map[string]request{
		"follow":   get("/llm/streams/"+id, header...),
		"resume":   get("/llm/streams/"+id, append(header, "Last-Event-ID", id+":1")...),
		"snapshot": get("/llm/streams/"+id, append(header, "Accept", "application/json")...),
		"POST":     post(`{}`, append(header, "Last-Event-ID", id+":1")...),
		"DELETE":   get("/llm/streams/"+id, header...),
		"cancel":   post("", header...),
		"key":      post("", header...),
	}
	for name, path := range map[string]string{"cancel": "/llm/cancel/" + id, "key": "/llm/cancel?idempotency_key=k"} {
		q := all[name]
		q.path = path
		all[name] = q
	}
	q := all["DELETE"]
	q.method = http.MethodDelete
	all["DELETE"] = q
	return all
}

// Another owner's response does not exist (frontmcp#529, unsloth#5069), nor
// does one of another scope.
func TestResponsesOfOthers(t *testing.T) {
	ticks := make(chan struct{})
	c, backend := keep(t, "owner {http.request.header.X-User}\nscope {http.request.header.X-Tenant}", ticking(3, ticks, make(chan struct{}, 1)))
	go func() { ticks <- struct{}{} }()
	resp := post(`{}`, "X-User", "ann", "X-Tenant", "t1", "Idempotency-Key", "k").do(t, c)
	fr := rig.NewFrameReader(resp.Body)
	frames(t, fr, 1)
	id := resp.Header.Get("X-Response-Id")
	for who, header := range map[string][]string{
		"another owner":          {"X-User", "bob", "X-Tenant", "t1"},
		"another scope":          {"X-User", "ann", "X-Tenant", "t2"},
		"another owner's prefix": {"X-User", "an", "X-Tenant", "nt1"},
		"no scope":               {"X-User", "ann"},
		"nobody":                 {"X-Tenant", "t1"},
		"a placeholder":          {"X-User", "{http.request.header.X-User}", "X-Tenant", "t1"},
	} {
		for what, q := range attempts(id, header...) {
			if who == "nobody" && what == "POST" {
				continue // it can resume nothing: see TestNoOwnerNoResume
			}
			refused(t, who+": "+what, q.do(t, c), 404, "unknown_response")
		}
	}
	equal(t, "the owner's snapshot", get("/llm/streams/"+id, "X-User", "ann", "X-Tenant", "t1", "Accept", "application/json").do(t, c).StatusCode, 200)
	go func() {
		for range 2 {
			ticks <- struct{}{}
		}
	}()
	equal(t, "end", lastData(frames(t, fr, -1)), `{"finish_reason":"stop"}`)
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// Without a scope the host is the scope: what one site hands out, another does
// not know.
func TestHostsAreScopes(t *testing.T) {
	backend := rig.NewBackend(t, whole3)
	_, port, _ := net.SplitHostPort(rig.FreeAddr(t))
	c := rig.Start(t, "http://:"+port+" {\n\tllm_stream {\n\t\tresume /llm\n\t}\n\treverse_proxy "+backend.Addr+"\n}")
	c.Addr = "127.0.0.1:" + port
	id, _ := complete(t, c, post(`{}`, "Idempotency-Key", "k"))
	other := &rig.Caddy{Addr: "localhost:" + port}
	for what, q := range attempts(id) {
		refused(t, what, q.do(t, other), 404, "unknown_response")
	}
	again, _ := complete(t, other, post(`{}`, "Idempotency-Key", "k"))
	if again == id {
		t.Error("an idempotency key counts for all hosts")
	}
	equal(t, "upstream calls", backend.Calls.Load(), 2)
}

// Where an owner is configured and the request has none, its response is like
// one without resume: its id cannot be found.
func TestNoOwnerNoResume(t *testing.T) {
	c, backend := keep(t, "owner {http.request.header.X-User}\nchannel {http.request.header.X-Chat-Id}", whole3)
	id, _ := complete(t, c, post(`{}`, "X-Chat-Id", "c1", "Idempotency-Key", "k"))
	for _, user := range []string{"", "ann"} {
		for what, q := range attempts(id, "X-User", user) {
			refused(t, fmt.Sprintf("%s as %q", what, user), q.do(t, c), 404, "unknown_response")
		}
	}
	refused(t, "channel", get("/llm/channels/c1").do(t, c), 404, "unknown_response")
	complete(t, c, post(`{}`, "Idempotency-Key", "k"))
	equal(t, "upstream calls", backend.Calls.Load(), 2)
}

// A snapshot is the response as it is, on one line of JSON.
func TestSnapshot(t *testing.T) {
	const usage = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],` +
		`"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46}}` + "\n\n"
	next := make(chan string)
	c, _ := serve(t, "include reasoning tool_calls\nresume /llm", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for piece := range next {
			rig.Say(w, piece)
		}
	})
	go func() {
		next <- rig.Chunk(`Hel`)
		next <- rig.Chunk(`lo \"you\"\n`)
	}()
	resp := post(`{}`).do(t, c)
	fr := rig.NewFrameReader(resp.Body)
	frames(t, fr, 2)
	id := resp.Header.Get("X-Response-Id")
	began := time.Now()
	shot := func() map[string]any {
		t.Helper()
		resp := get("/llm/streams/"+id, "Accept", "application/json").do(t, c)
		equal(t, "status", resp.StatusCode, http.StatusOK)
		equal(t, "type", resp.Header.Get("Content-Type"), "application/json")
		equal(t, "Cache-Control", resp.Header.Get("Cache-Control"), "no-store")
		body, err := io.ReadAll(resp.Body)
		var m map[string]any
		if err != nil || json.Unmarshal(body, &m) != nil {
			t.Fatalf("%s: %v", body, err)
		}
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(m["started_at"]))
		if err != nil || at.After(began) || at.Before(began.Add(-time.Minute)) {
			t.Errorf("started at %v: %v", m["started_at"], err)
		}
		delete(m, "started_at")
		delete(m, "model")
		return m
	}
	same := func(what string, got, want map[string]any) {
		t.Helper()
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		equal(t, what, string(g), string(w))
	}
	want := map[string]any{"response_id": id, "status": "in_progress", "text": "Hello \"you\"\n", "last_event_id": id + ":2"}
	same("while it runs", shot(), want)

	for _, delta := range []string{
		`{"reasoning_content":"hm"}`,
		`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"ci"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"ty\":1}"}}]}`,
	} {
		next <- `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":` + delta + `}]}` + "\n\n"
	}
	stop, end, _ := strings.Cut(rig.Stop, "\n\n")
	next <- stop + "\n\n"
	next <- usage
	next <- end
	frames(t, fr, -1)
	close(next)
	maps.Copy(want, map[string]any{
		"status": "done", "finish_reason": "tool_calls", "provider_finish_reason": "stop",
		"last_event_id": id + ":6", "reasoning": "hm",
		"tool_calls": []any{map[string]any{"id": "call_1", "name": "weather", "arguments": `{"city":1}`}},
		"usage":      map[string]any{"input_tokens": 12, "output_tokens": 34},
	})
	same("at the end", shot(), want)
}

// What has failed, and what was cancelled, say so in their snapshots.
func TestSnapshotOfWhatFailed(t *testing.T) {
	c, _ := keep(t, "", whole(rig.Chunk("a")+`data: {"error":{"message":"busy","type":"server_error"}}`+"\n\n"))
	id, _ := complete(t, c, post(`{}`))
	var s struct {
		Status, Text string
		Error        rig.Error
		LastEventID  string `json:"last_event_id"`
	}
	resp := get("/llm/streams/"+id, "Accept", "application/json").do(t, c)
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	equal(t, "snapshot", fmt.Sprint(s.Status, s.Text, s.Error.Code, string(s.Error.Upstream), s.LastEventID),
		`failedaupstream_error{"message":"busy","type":"server_error"}`+id+":2")
}

// Cancelling what has ended says how it ended, as often as it is asked.
func TestCancelAfterTheEnd(t *testing.T) {
	c, _ := keep(t, "", whole3)
	id, _ := complete(t, c, post(`{}`, "Idempotency-Key", "k"))
	for range 2 {
		for _, what := range []string{"DELETE", "cancel", "key"} {
			resp := attempts(id)[what].do(t, c)
			var answer struct {
				ResponseID string `json:"response_id"`
				Status     string
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			equal(t, what, fmt.Sprint(resp.StatusCode, answer.ResponseID, answer.Status), "200"+id+"done")
		}
	}
	_, all := complete(t, c, get("/llm/streams/"+id))
	equal(t, "the response", lastData(all), `{"finish_reason":"stop"}`)
}

// Followers of a response and of a channel hear something as often as the
// route says.
func TestHeartbeatsOfFollowers(t *testing.T) {
	ticks := make(chan struct{})
	c, _ := keep(t, "owner anyone\nchannel {http.request.header.X-Chat-Id}\n}\nheartbeat 50ms\ntimeouts {\nwrite 10s", ticking(2, ticks, make(chan struct{}, 1)))
	go func() { ticks <- struct{}{} }()
	resp := post(`{}`, "X-Chat-Id", "c1").do(t, c)
	for what, path := range map[string]string{
		"response": "/llm/streams/" + resp.Header.Get("X-Response-Id"), "channel": "/llm/channels/c1",
	} {
		r := bufio.NewReader(get(path).do(t, c).Body)
		for pings := 0; pings < 3; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if line == ": ping\n" {
				pings++
			}
		}
	}
}

// What is not ours passes on, under the prefix too.
func TestOtherRequestsUnderThePrefix(t *testing.T) {
	c, backend := keep(t, "", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	})
	for n, line := range []string{
		"GET /llm", "GET /llm/", "GET /llm/streams", "GET /llm/streams/", "PUT /llm/streams/x", "POST /llm/streams/x", "PATCH /llm/streams/x",
		"GET /llm/cancel", "GET /llm/cancel/x", "DELETE /llm/cancel/x", "GET /llm/channels/", "POST /llm/channels/x", "DELETE /llm/channels/x",
		"OPTIONS /llm/streams/x", "OPTIONS /llm/cancel", "GET /llm/other/x", "GET /llmstreams/x", "GET /llm2/streams/x", "GET /x/llm/streams/x",
	} {
		method, path, _ := strings.Cut(line, " ")
		resp := request{method: method, path: path}.do(t, c)
		body, _ := io.ReadAll(resp.Body)
		equal(t, line, fmt.Sprint(resp.StatusCode, " ", string(body)), "200 "+line)
		equal(t, "calls", backend.Calls.Load(), int64(n+1))
	}
}

// Passthrough leaves Last-Event-ID to the upstream, whose it is.
func TestPassthroughIsNotResumable(t *testing.T) {
	got := make(chan string, 1)
	c, _ := serve(t, "emit {http.request.header.X-Emit}\nresume /llm", func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Last-Event-ID")
		whole3(w, r)
	})
	id, _ := complete(t, c, post(`{}`))
	<-got
	resp := post(`{}`, "X-Emit", "passthrough", "Last-Event-ID", id+":1").do(t, c)
	body, _ := io.ReadAll(resp.Body)
	equal(t, "body", string(body), rig.Chunk("a")+rig.Chunk("b")+rig.Stop)
	equal(t, "upstream's Last-Event-ID", <-got, id+":1")
	if own := resp.Header.Get("X-Response-Id"); own != "" {
		refused(t, "its id", get("/llm/streams/"+own).do(t, c), 404, "unknown_response")
	}
}

// corsSite is what docs/recipes.md shows for pages of another origin.
const corsSite = `ADDR {
	@app header Origin https://app.example.com
	header @app {
		Access-Control-Allow-Origin   https://app.example.com
		Access-Control-Allow-Methods  "GET, POST, DELETE"
		Access-Control-Allow-Headers  "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
		Access-Control-Expose-Headers "Retry-After, X-Response-Id"
		+Vary                         Origin
		defer
	}
	@preflight {
		method OPTIONS
		header Access-Control-Request-Method *
	}
	respond @preflight 204

	llm_stream {
		resume /llm
	}
	reverse_proxy BACKEND
}`

// EventSource and fetch from a page of another origin.
func TestCORS(t *testing.T) {
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // as Ollama does
		whole3(w, r)
	})
	c := rig.Start(t, strings.ReplaceAll(corsSite, "BACKEND", backend.Addr))
	const origin = "https://app.example.com"
	for _, path := range []string{chatPath, "/llm/streams/x", "/llm/cancel/x", "/llm/channels/x"} {
		q := get(path, "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "last-event-id")
		q.method = http.MethodOptions
		resp := q.do(t, c)
		equal(t, "preflight of "+path, resp.StatusCode, http.StatusNoContent)
		equal(t, "methods", resp.Header.Get("Access-Control-Allow-Methods"), "GET, POST, DELETE")
		equal(t, "headers", strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "Last-Event-ID"), true)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 0)
	resp := post(`{}`, "Origin", origin).do(t, c)
	id := resp.Header.Get("X-Response-Id")
	all := map[string]*http.Response{"the POST": resp}
	for name, q := range attempts(id, "Origin", origin) {
		all[name] = q.do(t, c)
	}
	for name, resp := range all {
		equal(t, name, fmt.Sprint(resp.Header["Access-Control-Allow-Origin"]), "["+origin+"]")
		equal(t, name+": exposed", resp.Header.Get("Access-Control-Expose-Headers"), "Retry-After, X-Response-Id")
		equal(t, name+": Vary", slices.Contains(resp.Header["Vary"], "Origin"), true)
	}
}
