package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// whole3 is an answer of three frames: a, b and done.
var whole3 = whole(rig.Chunk("a") + rig.Chunk("b") + rig.Stop)

// complete makes a request and returns the frames of the whole response, and
// its id.
func complete(t *testing.T, c *rig.Caddy, q request) (id string, all []rig.Frame) {
	t.Helper()
	resp := q.do(t, c)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	all = frames(t, rig.NewFrameReader(resp.Body), -1)
	return resp.Header.Get("X-Response-Id"), all
}

// refused checks that a request is answered with an error of ours.
func refused(t *testing.T, what string, resp *http.Response, status int, code string) {
	t.Helper()
	if resp.StatusCode != status {
		t.Errorf("%s: status %d, not %d", what, resp.StatusCode, status)
		return
	}
	equal(t, what+": type", resp.Header.Get("Content-Type"), "application/json")
	equal(t, what+": code", errorCode(t, resp), code)
}

// A cursor that is not exactly one that was sent is refused before anything is
// sent, and nothing is replayed (hermes-webui#5677).
func TestBadCursors(t *testing.T) {
	c, backend := keep(t, "", whole3)
	id, all := complete(t, c, post(`{}`))
	other, _ := complete(t, c, post(`{}`))
	equal(t, "frames", len(all), 3)
	cursors := map[string]string{
		"no id of ours":    "bad/run:1",
		"negative":         "x:-1",
		"negative index":   id + ":-1",
		"20 digits":        id + ":12345678901234567890",
		"the future":       id + ":4",
		"no index":         id,
		"empty index":      id + ":",
		"no id":            ":1",
		"a leading zero":   id + ":01",
		"a sign":           id + ":+1",
		"a space":          id + ": 1",
		"hexadecimal":      id + ":0x1",
		"two colons":       id + ":1:1",
		"other digits":     id + ":\u0661",
		"id too short":     id[1:] + ":1",
		"id too long":      id + "x:1",
		"eight kilobytes":  id + ":" + strings.Repeat("1", 8<<10),
		"much of anything": strings.Repeat("x", 8<<10),
	}
	for name, cursor := range cursors {
		refused(t, "GET with "+name, get("/llm/streams/"+id, "Last-Event-ID", cursor).do(t, c), 400, "bad_cursor")
		refused(t, "POST with "+name, post(`{}`, "Last-Event-ID", cursor).do(t, c), 400, "bad_cursor")
		query := get("/llm/streams/" + id + "?last_event_id=" + url.QueryEscape(cursor))
		refused(t, "query with "+name, query.do(t, c), 400, "bad_cursor")
	}
	for name, cursor := range map[string]string{
		"CR LF": id + ":1\r\nX: y", "a line break": id + ":1\n", "NUL": id + ":1\x00", "another response's": other + ":1",
	} {
		query := get("/llm/streams/" + id + "?last_event_id=" + url.QueryEscape(cursor))
		refused(t, "query with "+name, query.do(t, c), 400, "bad_cursor")
	}
	refused(t, "GET with another response's", get("/llm/streams/"+id, "Last-Event-ID", other+":1").do(t, c), 400, "bad_cursor")
	equal(t, "upstream calls", backend.Calls.Load(), 2)
}

// A header beyond what the server takes is not even read.
func TestCursorOfAMegabyte(t *testing.T) {
	c, backend := keep(t, "", whole3)
	id, _ := complete(t, c, post(`{}`))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = fmt.Fprintf(conn, "%s /llm/streams/%s HTTP/1.1\r\nHost: %s\r\nLast-Event-ID: ", method, id, c.Addr)
			_, _ = io.WriteString(conn, strings.Repeat("1", 1<<20)+strings.Repeat("1", 64<<10)+"\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, method, resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
		_ = conn.Close()
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// The header is where a client is now, the query where it began.
func TestHeaderWinsOverQuery(t *testing.T) {
	c, _ := keep(t, "", whole3)
	id, all := complete(t, c, post(`{}`))
	path := "/llm/streams/" + id
	for name, tc := range map[string]struct {
		header, query string
		from          int
	}{
		"neither":   {"", "", 0},
		"query":     {"", id + ":2", 2},
		"header":    {id + ":1", "", 1},
		"both":      {id + ":2", id + ":0", 2},
		"bad query": {id + ":2", "x", 2},
	} {
		q := get(path)
		if tc.query != "" {
			q.path += "?last_event_id=" + tc.query
		}
		if tc.header != "" {
			q.header.Set("Last-Event-ID", tc.header)
		}
		rest := frames(t, rig.NewFrameReader(q.do(t, c).Body), -1)
		checkSeam(t, name, all, tc.from, rest)
		equal(t, name+": first index", rest[0].Index() > tc.from, true)
	}
	q := get(path+"?last_event_id="+id+":1", "Last-Event-ID", "x")
	refused(t, "bad header", q.do(t, c), 400, "bad_cursor")
}

// When everything was had the answer is 204, at which an EventSource stops
// (fetch-event-source#54, js-eventsource#37).
func TestNothingMoreAfterTheEnd(t *testing.T) {
	c, backend := keep(t, "", whole3)
	id, _ := complete(t, c, post(`{}`))
	last := fmt.Sprintf("%s:3", id)
	for name, q := range map[string]request{
		"GET":       get("/llm/streams/"+id, "Last-Event-ID", last),
		"query":     get("/llm/streams/" + id + "?last_event_id=" + last),
		"POST":      post(`{}`, "Last-Event-ID", last),
		"empty":     post("", "Last-Event-ID", last),
		"other":     post(`{"other":true}`, "Last-Event-ID", last),
		"source":    get(chatPath, "Last-Event-ID", last, "Accept", "text/event-stream"),
		"one short": get("/llm/streams/"+id, "Last-Event-ID", id+":2"),
	} {
		resp := q.do(t, c)
		want := http.StatusNoContent
		if name == "one short" {
			want = http.StatusOK
		}
		equal(t, name, resp.StatusCode, want)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// Where the id is known, a POST that comes back goes on, whatever its body; a
// GET by EventSource to the route too. The upstream is never called.
func TestResumingRequestsCallNobody(t *testing.T) {
	c, backend := keep(t, "", whole3)
	id, all := complete(t, c, post(`{}`))
	for name, q := range map[string]request{
		"same body":   post(`{}`, "Last-Event-ID", id+":1"),
		"other body":  post(`{"other":1}`, "Last-Event-ID", id+":1"),
		"no body":     post("", "Last-Event-ID", id+":1"),
		"EventSource": get(chatPath, "Last-Event-ID", id+":1", "Accept", "text/event-stream"),
		"other path":  {http.MethodPost, "/v1/other", "", http.Header{"Last-Event-ID": {id + ":1"}}},
		"other key":   post(`{}`, "Last-Event-ID", id+":1", "Idempotency-Key", "k"),
	} {
		resp := q.do(t, c)
		equal(t, name, resp.StatusCode, http.StatusOK)
		equal(t, name+": id", resp.Header.Get("X-Response-Id"), id)
		equal(t, name+": rest", fmt.Sprint(frames(t, rig.NewFrameReader(resp.Body), -1)), fmt.Sprint(all[1:]))
	}
	refused(t, "unknown", post(`{}`, "Last-Event-ID", fanout.NewID()+":1").do(t, c), 404, "unknown_response")
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// net/http notices that a client has left only when the body was read: one
// that resumes with a large body and leaves ends the response's last reading.
func TestResumingPostNoticesTheLeaving(t *testing.T) {
	ticks, left := make(chan struct{}), make(chan struct{}, 1)
	c, _ := keep(t, "grace 200ms", ticking(20, ticks, left))
	go func() { ticks <- struct{}{} }()
	first, leaveFirst := leavable(t, c, post(`{}`))
	had := frames(t, rig.NewFrameReader(first.Body), 1)
	second, leaveSecond := leavable(t, c, post(strings.Repeat("x", 1<<20), "Last-Event-ID", had[0].ID))
	leaveFirst()
	go func() { ticks <- struct{}{} }()
	frames(t, rig.NewFrameReader(second.Body), 1)
	select {
	case <-left:
		t.Fatal("the upstream was cancelled while somebody reads")
	case <-time.After(400 * time.Millisecond):
	}
	leaveSecond()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the leaving was not noticed")
	}
}

// leavable makes a request that can be cut.
func leavable(t *testing.T, c *rig.Caddy, q request) (resp *http.Response, leave func()) {
	t.Helper()
	ctx, leave := cancellable(t)
	resp, err := q.try(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, leave
}

// An expired response is 410 as long as it was kept once more, then unknown
// (open-design#5411, PostHog#101104). Keep counts from the end.
func TestExpiry(t *testing.T) {
	const kept = 300 * time.Millisecond
	ticks := make(chan struct{})
	c, backend := keep(t, "keep 300ms", ticking(3, ticks, nil))
	began := time.Now()
	resp := make(chan *http.Response, 1)
	go func() {
		r, err := post(`{}`).try(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		resp <- r
	}()
	for range 3 {
		time.Sleep(kept / 2) // it runs longer than it is kept
		ticks <- struct{}{}
	}
	ended := time.Now()
	first := <-resp
	defer func() { _ = first.Body.Close() }()
	all := frames(t, rig.NewFrameReader(first.Body), -1)
	equal(t, "text", all[0].Data+all[1].Data+all[2].Data, `{"text":"t0 "}{"text":"t1 "}{"text":"t2 "}`)
	if ran := time.Since(began); ran < kept {
		t.Fatalf("it ran for %v only", ran)
	}
	id, _, _ := strings.Cut(all[0].ID, ":")
	had := map[int]time.Time{}
	for status := 0; status != http.StatusNotFound; {
		status = get("/llm/streams/"+id, "Accept", "application/json").do(t, c).StatusCode
		if _, seen := had[status]; !seen {
			had[status] = time.Now()
		}
		if status == http.StatusGone && len(had) == 2 && had[0].IsZero() {
			had[0] = time.Now()
			refused(t, "follow", get("/llm/streams/"+id, "Last-Event-ID", id+":1").do(t, c), 410, "expired_response")
			refused(t, "POST", post(`{}`, "Last-Event-ID", id+":1").do(t, c), 410, "expired_response")
			refused(t, "cancel", request{method: "POST", path: "/llm/cancel/" + id}.do(t, c), 410, "expired_response")
		}
		if time.Since(ended) > patience {
			t.Fatal("it is never forgotten")
		}
	}
	if d := had[http.StatusGone].Sub(ended); d < kept {
		t.Errorf("it was kept for %v", d)
	}
	if d := had[http.StatusNotFound].Sub(ended); d < 2*kept {
		t.Errorf("it was remembered for %v", d)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}
