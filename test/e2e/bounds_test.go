package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A request body is read whole before the upstream is called, and no larger
// than max_body. (Of one that is not read, net/http takes 256 KiB; a client that
// still writes more may find the connection reset before it sees the 413.)
func TestMaxBody(t *testing.T) {
	c, backend := keep(t, "max_body 1000", whole3)
	for size, want := range map[int]int{0: 200, 999: 200, 1000: 200, 1001: 413, 200 << 10: 413} {
		for _, how := range []string{"with a length", "chunked"} {
			req := post(strings.Repeat("x", size)).build(t, c)
			if how == "chunked" {
				req.ContentLength = -1
				req.Body = io.NopCloser(req.Body)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if want == 413 {
				refused(t, fmt.Sprint(size, " bytes ", how), resp, 413, "request_too_large")
			} else {
				equal(t, fmt.Sprint(size, " bytes ", how), resp.StatusCode, want)
			}
		}
	}
	equal(t, "upstream calls", backend.Calls.Load(), 6)
}

// Caddy's own limit on bodies is told as Caddy tells it.
func TestCaddysOwnBodyLimit(t *testing.T) {
	backend := rig.NewBackend(t, whole3)
	c := rig.Start(t, `ADDR {
		request_body {
			max_size 100
		}
		llm_stream {
			resume /llm
		}
		reverse_proxy `+backend.Addr+`
	}`)
	for _, length := range []int64{200, -1} {
		req := post(strings.Repeat("x", 200)).build(t, c)
		req.ContentLength, req.Body = length, io.NopCloser(req.Body)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		equal(t, "status", resp.StatusCode, http.StatusRequestEntityTooLarge)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 0)
}

// A body that breaks off calls no upstream.
func TestBodyThatBreaksOff(t *testing.T) {
	c, backend := keep(t, "", whole3)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nabc", chatPath, c.Addr)
	_ = conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	equal(t, "status", resp.StatusCode, http.StatusBadRequest)
	equal(t, "a later request", post(`{}`).do(t, c).StatusCode, 200)
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// A response that does not fit into its log ends with an error, and its
// upstream with it (agent-network#271: memory within the bound).
func TestMaxSize(t *testing.T) {
	g := newGush(bulkEvents)
	c, _ := keep(t, "max_size 100KiB", g.ServeHTTP)
	id, all := complete(t, c, post(`{}`))
	last := all[len(all)-1]
	if last.Event != "error" || !strings.Contains(last.Data, `"code":"response_too_large"`) {
		t.Errorf("the last frame is %+v", last)
	}
	for i, f := range all[:len(all)-1] {
		equal(t, "data", f.Data, `{"text":"`+g.text(i)+`"}`)
	}
	if n := len(all) - 1; n < 15 || n > 100<<10/bulkSize {
		t.Errorf("%d deltas of %d bytes have got into 100 KiB", n, bulkSize)
	}
	if err := g.finished(t); err == nil {
		t.Error("the upstream was not cancelled")
	}
	_, again := complete(t, c, get("/llm/streams/"+id))
	equal(t, "kept", again[len(again)-1], last)
}

// withGlobal is a config with global options and resume.
func withGlobal(t *testing.T, global string, answer http.HandlerFunc) (*rig.Caddy, *rig.Backend) {
	t.Helper()
	backend := rig.NewBackend(t, answer)
	return rig.Start(t, "{\n\tllm_stream {\n"+global+"\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tresume /llm\n"+quickDrain+
		"\n\t}\n\treverse_proxy "+backend.Addr+"\n}"), backend
}

// All kept responses together take no more than max_memory: the one that ended
// first goes.
func TestMaxMemory(t *testing.T) {
	c, backend := withGlobal(t, "max_memory 1MiB", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for range 4 {
			rig.Say(w, rig.Chunk(strings.Repeat("x", 100<<10)))
		}
		rig.Say(w, rig.Stop)
	})
	var ids []string
	for range 5 {
		id, _ := complete(t, c, post(`{}`))
		ids = append(ids, id)
	}
	for i, id := range ids {
		resp := get("/llm/streams/"+id, "Accept", "application/json").do(t, c)
		if i < 3 {
			refused(t, fmt.Sprint("response ", i), resp, 410, "expired_response")
		} else {
			equal(t, fmt.Sprint("response ", i), resp.StatusCode, 200)
		}
	}
	equal(t, "upstream calls", backend.Calls.Load(), 5)
}

// max_clients counts every client that is connected, and none that has left.
func TestMaxClients(t *testing.T) {
	ticks, left := make(chan struct{}), make(chan struct{}, 10)
	c, backend := withGlobal(t, "max_clients 3", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			ticking(20, ticks, left)(w, r)
		}
	})
	go func() { ticks <- struct{}{} }()
	first := post(`{}`).do(t, c)
	id := first.Header.Get("X-Response-Id")
	equal(t, "a follower", get("/llm/streams/"+id).do(t, c).StatusCode, 200)
	third, leave := leavable(t, c, post(``, "Last-Event-ID", id+":0"))
	equal(t, "one who resumes", third.StatusCode, 200)
	for _, name := range []string{"follow", "resume", "POST", "snapshot"} {
		resp := attempts(id)[name].do(t, c)
		equal(t, name+": Retry-After", resp.Header.Get("Retry-After"), "1")
		refused(t, name, resp, 503, "too_many_clients")
	}
	// a request that does not stay is served, and may make room
	refused(t, "cancelling what there is not", attempts(id)["key"].do(t, c), 404, "unknown_response")
	refused(t, "a new one", post(`{}`).do(t, c), 503, "too_many_clients")

	// an EventSource takes every status but 200 for final
	for what, q := range map[string]request{
		"follow": get("/llm/streams/"+id, "Accept", "text/event-stream", "Last-Event-ID", id+":1"),
		"new":    get(chatPath, "Accept", "text/event-stream"),
	} {
		resp := q.do(t, c)
		equal(t, what, resp.StatusCode, 200)
		f := frames(t, rig.NewFrameReader(resp.Body), -1)
		equal(t, what, fmt.Sprint(f), fmt.Sprintf(`[{%s reconnect {"reason":"busy","retry_ms":1000} 1000}]`, q.header.Get("Last-Event-ID")))
	}
	other := get("/v1/models")
	equal(t, "what can not generate", other.do(t, c).StatusCode, 200)

	leave()
	eventually(t, "who has left counts no longer", func() bool { return get("/llm/streams/"+id).do(t, c).StatusCode == 200 })
	equal(t, "cancelling", attempts(id)["cancel"].do(t, c).StatusCode, 200)
	equal(t, "upstream calls", backend.Calls.Load(), 2) // the models and the first
}

// What is no stream is cut when it is cancelled, and no frame gets into it.
func TestCancelInMidJSON(t *testing.T) {
	said, gone := make(chan struct{}), make(chan struct{})
	c, _ := keep(t, "", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		rig.Say(w, `{"choices":`)
		close(said)
		<-r.Context().Done()
		close(gone)
	})
	resp := post(`{}`, "Idempotency-Key", "k").do(t, c)
	<-said
	request{method: "POST", path: "/llm/cancel?idempotency_key=k"}.do(t, c)
	body, err := io.ReadAll(resp.Body)
	if string(body) != `{"choices":` || err == nil {
		t.Errorf("%q ends with %v", body, err)
	}
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the upstream still runs")
	}
}
