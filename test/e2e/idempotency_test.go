package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// The same request again joins the response that is running, and gets one that
// is kept: it is never paid for twice.
func TestSameKeyAttaches(t *testing.T) {
	ticks := make(chan struct{})
	c, backend := keep(t, "", ticking(6, ticks, nil))
	keyed := post(`{"stream":true}`, "Idempotency-Key", "k")
	go func() {
		for range 3 {
			ticks <- struct{}{}
		}
	}()
	first := rig.NewFrameReader(keyed.do(t, c).Body)
	had := frames(t, first, 3)
	second := rig.NewFrameReader(keyed.do(t, c).Body)
	joined := frames(t, second, 1)
	equal(t, "what was before", joined[0].Data, `{"text":"`+wantText(3)+`"}`)
	equal(t, "its id", joined[0].ID, had[2].ID)
	go func() {
		for range 3 {
			ticks <- struct{}{}
		}
	}()
	rest := frames(t, first, -1)
	equal(t, "live", fmt.Sprint(frames(t, second, -1)), fmt.Sprint(rest))
	kept := frames(t, rig.NewFrameReader(keyed.do(t, c).Body), -1)
	equal(t, "kept", kept[0].Data, `{"text":"`+wantText(6)+`"}`)
	equal(t, "its end", kept[1], rest[len(rest)-1])
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

func TestSameKeyWithAnotherBody(t *testing.T) {
	c, backend := keep(t, "", whole3)
	complete(t, c, post(`{"a":1}`, "Idempotency-Key", "k"))
	for _, body := range []string{`{"a":2}`, `{"a":1} `, ``} {
		refused(t, body, post(body, "Idempotency-Key", "k").do(t, c), 422, "idempotency_mismatch")
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// A key means nothing without the request that it was used for and the clients
// that used it.
func TestWhatAKeyCountsWith(t *testing.T) {
	c, backend := keep(t, "owner {http.request.header.X-User}\nscope {http.request.header.X-Tenant}", whole3)
	base := func() request {
		return post(`{}`, "Idempotency-Key", "k", "X-User", "ann", "X-Tenant", "t", "Authorization", "Bearer 1", "X-Api-Key", "x")
	}
	set := func(field, value string) func(*request) {
		return func(q *request) { q.header.Set(field, value) }
	}
	cases := map[string]func(*request){
		"the same":               func(*request) {},
		"another header":         set("User-Agent", "other"),
		"another key":            set("Idempotency-Key", "l"),
		"another case":           set("Idempotency-Key", "K"),
		"another owner":          set("X-User", "bob"),
		"another scope":          set("X-Tenant", "u"),
		"another Authorization":  set("Authorization", "Bearer 2"),
		"another X-Api-Key":      set("X-Api-Key", "y"),
		"an Api-Key":             set("Api-Key", "x"),
		"an X-Goog-Api-Key":      set("X-Goog-Api-Key", "x"),
		"credentials swapped":    func(q *request) { set("Authorization", "x")(q); set("X-Api-Key", "Bearer 1")(q) },
		"no Authorization":       func(q *request) { q.header.Del("Authorization") },
		"another path":           func(q *request) { q.path = "/v1/completions" },
		"a query":                func(q *request) { q.path += "?x=1" },
		"another query":          func(q *request) { q.path += "?x=2" },
		"another method":         func(q *request) { q.method, q.body = http.MethodGet, ""; set("Accept", "text/event-stream")(q) },
		"owner and scope joined": func(q *request) { set("X-Tenant", "ta")(q); set("X-User", "nn")(q) },
	}
	first, _ := complete(t, c, base())
	calls, seen := int64(1), map[string]string{first: "the first"}
	for name, change := range cases {
		q := base()
		change(&q)
		id, _ := complete(t, c, q)
		if name == "the same" || name == "another header" {
			equal(t, name, id, first)
			continue
		}
		calls++
		if other := seen[id]; other != "" {
			t.Errorf("%s got the response of %s", name, other)
		}
		seen[id] = name
	}
	equal(t, "upstream calls", backend.Calls.Load(), calls)
}

// What has failed before any output, or is no stream, may be tried again with
// the same key; what has cost something may not.
func TestWhenAKeyIsFreed(t *testing.T) {
	status := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status int
		freed  bool
	}{
		"error event first":     {whole(`data: {"error":{"message":"busy","type":"overloaded_error"}}` + "\n\n"), 529, true},
		"nothing":               {whole(""), 502, true},
		"abort before output":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, true},
		"an error status":       {status(500, "application/json", `{"error":{}}`), 500, true},
		"a whole JSON answer":   {status(200, "application/json", `{"choices":[]}`), 200, true},
		"an unknown stream":     {whole("data: {\"jsonrpc\":\"2.0\"}\n\n"), 200, true},
		"error after output":    {whole(rig.Chunk("a") + `data: {"error":{"message":"busy"}}` + "\n\n"), 200, false},
		"truncated with output": {whole(rig.Chunk("a")), 200, false},
		"done":                  {whole3, 200, false},
		"done without output":   {whole(rig.Stop), 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, backend := keep(t, "", tc.answer)
			keyed := post(`{}`, "Idempotency-Key", "k")
			if name == "an unknown stream" {
				keyed.path = "/mcp"
			}
			var ends [2]string
			for i := range ends {
				resp := keyed.do(t, c)
				equal(t, "status", resp.StatusCode, tc.status)
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				ends[i] = string(body[max(0, bytes.LastIndex(body, []byte("id: "))):])
			}
			want := int64(1)
			if tc.freed {
				want = 2
			} else {
				equal(t, "the last frame of the second time", ends[1], ends[0])
			}
			equal(t, "upstream calls", backend.Calls.Load(), want)
		})
	}
}

// Fifty at once, before anything has come: one upstream call, and every client
// gets everything.
func TestManyWithOneKey(t *testing.T) {
	const n = 50
	ticks := make(chan struct{})
	c, backend := keep(t, "", ticking(20, ticks, nil))
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := post(`{"stream":true}`, "Idempotency-Key", "k").try(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			a := new(rig.Answer)
			for fr := rig.NewFrameReader(resp.Body); ; {
				f, err := fr.Next()
				if err != nil {
					break
				}
				if err := a.Merge(f); err != nil {
					t.Error(err)
				}
			}
			if a.Text != wantText(20) || a.Done == nil {
				t.Errorf("%d has %q", resp.StatusCode, a.Text)
			}
		})
	}
	for range 20 {
		ticks <- struct{}{}
	}
	wg.Wait()
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}
