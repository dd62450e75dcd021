package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A response that goes through as it came has nothing of ours in it, also where
// the client's heartbeats are beaten by another goroutine than the one that
// passes it on.
func TestNoHeartbeatInWhatPasses(t *testing.T) {
	const pieces = 30
	answers := map[string]func(h http.Header) string{ // which returns a piece
		"JSON": func(h http.Header) string { h.Set("Content-Type", "application/json"); return "[1, 2]\n" },
		"JSON of a length": func(h http.Header) string {
			h.Set("Content-Type", "application/json")
			h.Set("Content-Length", fmt.Sprint(7*pieces))
			return "[1, 2]\n"
		},
		"unknown stream": func(h http.Header) string {
			h.Set("Content-Type", "text/event-stream")
			return "data: {\"jsonrpc\":\"2.0\"}\n\n"
		},
	}
	for way, options := range map[string]string{
		"attached": "", "dropping": "slow_client drop\n", "tied": "slow_client disconnect\n", "resumable": "resume /llm\n" + quickDrain,
	} {
		for name, answer := range answers {
			t.Run(way+"/"+name, func(t *testing.T) {
				c, _ := serve(t, "heartbeat 10ms\n"+options, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					piece := answer(w.Header())
					for range pieces {
						rig.Say(w, piece)
						time.Sleep(3 * time.Millisecond)
					}
				})
				got, err := body(t, post(`{"stream":true}`).do(t, c))
				want := strings.Repeat(answer(make(http.Header)), pieces)
				if err != nil || got != want && !strings.HasPrefix(got, ": ping\n") { // a heartbeat may have been first
					t.Errorf("%v after %q", err, got)
				}
			})
		}
	}
}

// To cancel what passes through is to cut it off.
func TestCancelWhatPasses(t *testing.T) {
	c, _ := keep(t, "", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		rig.Say(w, "[1,\n")
		<-r.Context().Done()
	})
	resp := post(`{}`, "Idempotency-Key", "k").do(t, c)
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	cancel := request{method: http.MethodPost, path: "/llm/cancel?idempotency_key=k", header: http.Header{}}
	equal(t, "status", cancel.do(t, c).StatusCode, http.StatusOK)
	if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 {
		t.Errorf("%q and then %v", rest, err)
	}
	eventually(t, "it is logged", func() bool { return strings.Contains(c.Logs(), "abort") })
	if logs := c.Logs(); strings.Contains(logs, "panic serving") {
		t.Error(logs)
	}
}
