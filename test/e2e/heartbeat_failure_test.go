package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// lateFailures are what can go wrong once a heartbeat has committed the
// response, and before there is anything of the upstream's.
var lateFailures = map[string]struct {
	code    string
	options string
	fail    http.HandlerFunc // when a heartbeat has come
}{
	"the connection breaks": {code: "upstream_error", fail: func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}},
	"an error status": {code: "upstream_error", fail: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"message":"no luck"}}`, http.StatusServiceUnavailable)
	}},
	"no stream": {code: "invalid_upstream", fail: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}},
	"an empty stream": {code: "upstream_truncated", fail: func(w http.ResponseWriter, _ *http.Request) { rig.EventStream(w) }},
	"an aborted stream": {code: "upstream_truncated", fail: func(w http.ResponseWriter, _ *http.Request) {
		rig.EventStream(w)
		rig.Say(w, ": wait\n\n")
		panic(http.ErrAbortHandler)
	}},
	"silence": {
		code: "first_token_timeout", options: "timeouts {\nfirst_token 200ms\n}\n",
		fail: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	},
}

// waysToServe are the options that decide which goroutine produces a response,
// and what may hold it back.
var waysToServe = map[string]string{
	"attached":  "",
	"tied":      "slow_client disconnect\n",
	"resumable": "resume /llm\n" + quickDrain,
}

// Whatever becomes of the upstream call, a response that a heartbeat has begun
// ends with an error in its dialect, and is counted and forgotten.
func TestFailureAfterHeartbeat(t *testing.T) {
	for way, options := range waysToServe {
		for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
			for name, failure := range lateFailures {
				t.Run(way+"/"+dialect+"/"+name, func(t *testing.T) {
					beaten := make(chan struct{})
					backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						<-beaten
						failure.fail(w, r)
					})
					c := rig.Start(t, fmt.Sprintf(withMetrics+"\n", "emit "+dialect+"\nheartbeat 10ms\n"+options+failure.options, backend.Addr))
					before := atRest(t, c)
					resp := post(`{"stream":true}`).do(t, c)
					r := bufio.NewReader(resp.Body)
					if first, err := r.ReadString('\n'); first != ": ping\n" {
						t.Fatalf("it begins with %q, %v", first, err)
					}
					close(beaten)
					rest, err := io.ReadAll(r)
					if !strings.Contains(string(rest), failure.code) {
						t.Errorf("it ends with %q", rest)
					}
					aborts := dialect == "openai" || dialect == "anthropic"
					equal(t, "aborted", err != nil, aborts)
					label := `streams_total{format="unknown",outcome="` + failure.code + `"}`
					eventually(t, "it is counted", func() bool { return scrape(t, c)[label]-before[label] == 1 })
					atRest(t, c)
					if logs := c.Logs(); strings.Contains(logs, "panic serving") {
						t.Error(logs)
					}
				})
			}
		}
	}
}

// What failed after a heartbeat had given its id away can be asked for by it.
func TestFailureAfterHeartbeatIsKept(t *testing.T) {
	beaten := make(chan struct{})
	c, _ := keep(t, "}\nheartbeat 10ms\ntimeouts {\ntotal off", func(http.ResponseWriter, *http.Request) {
		<-beaten
		panic(http.ErrAbortHandler)
	})
	resp := post(`{"stream":true}`).do(t, c)
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(beaten)
	_, _ = io.Copy(io.Discard, resp.Body)
	again := rig.ReadAnswer(t, get("/llm/streams/"+resp.Header.Get("X-Response-Id")).do(t, c).Body)
	if again.Error == nil || again.Error.Code != "upstream_error" {
		t.Errorf("it ends with %+v", again.Error)
	}
}

// An error of the next handler after that does not reach Caddy's error routes,
// which would write a page into the stream.
func TestErrorRoutesAreNotForStreams(t *testing.T) {
	backend := rig.NewBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	c := rig.Start(t, `ADDR {
		llm_stream {
			heartbeat 10ms
		}
		reverse_proxy `+backend.Addr+` {
			transport http {
				response_header_timeout 100ms
			}
		}
		handle_errors {
			respond "a page"
		}
	}`)
	text, err := body(t, post(`{"stream":true}`).do(t, c))
	if err != nil || strings.Contains(text, "a page") || !strings.Contains(text, "event: error") {
		t.Errorf("%q, %v", text, err)
	}
	text, _ = body(t, post(`{}`).do(t, c)) // no heartbeat has committed this one
	equal(t, "error route", text, "a page")
}
