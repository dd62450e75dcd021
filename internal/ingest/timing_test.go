package ingest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// script is a backend that pauses and says things in turn: a duration is a
// pause, a string is said. It sends its header with the first string.
func script(steps ...any) enginetest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, step := range steps {
			switch step := step.(type) {
			case time.Duration:
				if !enginetest.Pause(r, step) {
					panic(http.ErrAbortHandler) // as reverse_proxy in the middle of a body
				}
			case string:
				if r.Context().Err() != nil {
					panic(http.ErrAbortHandler)
				}
				if w.Header().Get("Content-Type") == "" {
					enginetest.EventStream(w)
				}
				if err := enginetest.Say(w, step); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

const never = 24 * time.Hour

// The three limits interrupt a response at their moment, and name themselves.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	role := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	reasoning := `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n"
	tool := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}` + "\n\n"
	finish, _, _ := strings.Cut(enginetest.Stop, enginetest.Finished)
	a := enginetest.Delta("a")
	limited := timeouts.Limits{FirstToken: 5 * time.Second, BetweenTokens: 2 * time.Second, Total: time.Minute}
	for name, tc := range map[string]struct {
		backend enginetest.Handler
		unasked bool          // the request does not ask for a stream
		takes   time.Duration // how long the client takes for each piece
		text    string
		end     string
		took    time.Duration
	}{
		"no header":                         {backend: script(never), end: "first_token_timeout", took: 5 * time.Second},
		"only comments":                     {backend: script(": a\n\n", 3*time.Second, ": b\n\n", never), end: "first_token_timeout", took: 5 * time.Second},
		"only a role":                       {backend: script(role, never), end: "first_token_timeout", took: 5 * time.Second},
		"from the header, where not asked":  {backend: script(7*time.Second, role, never), unasked: true, end: "first_token_timeout", took: 12 * time.Second},
		"nothing where it was not asked":    {backend: script(never), unasked: true, end: "total_timeout", took: time.Minute},
		"a gap":                             {backend: script(4*time.Second, a, never), text: "a", end: "between_tokens_timeout", took: 6 * time.Second},
		"a gap with comments":               {backend: script(a, time.Second, ": b\n\n", never), text: "a", end: "between_tokens_timeout", took: 2 * time.Second},
		"reasoning that is not emitted":     {backend: script(4*time.Second, reasoning, never), end: "between_tokens_timeout", took: 6 * time.Second},
		"a tool call that is not emitted":   {backend: script(4*time.Second, tool, never), end: "between_tokens_timeout", took: 6 * time.Second},
		"reasoning, then a text":            {backend: script(4*time.Second, reasoning, time.Second, a+enginetest.Stop), text: "a", end: "done stop", took: 5 * time.Second},
		"a finish without a terminator":     {backend: script(a+finish, never), text: "a", end: "done stop", took: 2 * time.Second},
		"what the client takes is not gap":  {backend: script(a, time.Second, a, time.Second, a+enginetest.Stop), takes: 10 * time.Second, text: "a|a|a", end: "done stop", took: 32 * time.Second},
		"what the client takes is of total": {backend: script(a, a, a, a, a, never), takes: 25 * time.Second, text: "a|a|a", end: "total_timeout", took: 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, call := produce(t, tc.backend, limits(limited), func(_ *ingest.Config, p *production) {
					p.asks, p.out.takes = !tc.unasked, tc.takes
				})
				p.want(t, tc.text, tc.end)
				equal(t, "took", p.took, tc.took)
				if p.log.terminal.Kind == event.Failed {
					equal(t, "status", p.log.terminal.Err.Status, http.StatusGatewayTimeout)
				}
				if call.Err != nil || call.Aborted {
					t.Errorf("the call has ended with %+v", call)
				}
			})
		})
	}
}

// A whole answer is under total alone, and is aborted by it.
func TestWholeAnswersAreUnderTotalAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pause   time.Duration
		aborted bool
	}{"in time": {59 * time.Second, false}, "too late": {never, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, call := produce(t, func(w http.ResponseWriter, r *http.Request) error {
					w.Header().Set("Content-Type", "application/json")
					_ = enginetest.Say(w, `{"a":`)
					if !enginetest.Pause(r, tc.pause) {
						return nil
					}
					return enginetest.Say(w, `1}`)
				}, limits(timeouts.Limits{
					FirstToken: time.Second, BetweenTokens: time.Second, Total: time.Minute, Heartbeat: time.Second,
				}))
				equal(t, "aborted", call.Aborted, tc.aborted)
				equal(t, "beats", p.beats, 0)
				equal(t, "passed", p.Passed(), true)
			})
		})
	}
}

// Where heartbeats may begin: before the header only where a stream was asked
// for, in a passthrough only after it, and never in what is no stream, in one
// that is not known, or in Gemini's.
func TestWhereHeartbeatsBegin(t *testing.T) {
	t.Parallel()
	silence := func(header string) enginetest.Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			enginetest.Pause(r, 10500*time.Millisecond)
			w.Header().Set("Content-Type", header)
			w.WriteHeader(http.StatusOK)
			enginetest.Pause(r, 10*time.Second-time.Millisecond)
			return nil
		}
	}
	const stream, json = "text/event-stream", "application/json"
	unknown := func(w http.ResponseWriter, r *http.Request) error {
		err := enginetest.Streams(strings.Repeat("data: {\"x\":1}\n\n", 20))(w, r)
		enginetest.Pause(r, 10*time.Second)
		return err
	}
	gemini := "/v1beta/models/g:streamGenerateContent"
	for name, tc := range map[string]struct {
		next    enginetest.Handler
		options []func(*ingest.Config, *production)
		beats   int
	}{
		"a stream that was asked for":        {silence(stream), []func(*ingest.Config, *production){asksForStream}, 20},
		"a stream that was not":              {silence(stream), nil, 9},
		"an answer that is no stream":        {silence(json), nil, 0},
		"a passed stream":                    {silence(stream), []func(*ingest.Config, *production){passthrough, asksForStream}, 9},
		"Gemini":                             {silence(stream), []func(*ingest.Config, *production){asksForStream, path(gemini)}, 20},
		"Gemini, passed":                     {silence(stream), []func(*ingest.Config, *production){passthrough, asksForStream, path(gemini)}, 0},
		"a stream that is not known":         {unknown, []func(*ingest.Config, *production){asksForStream}, 0},
		"a stream that is not known, passed": {unknown, []func(*ingest.Config, *production){asksForStream, passthrough}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, _ := produce(t, tc.next, append(tc.options, limits(timeouts.Limits{Heartbeat: time.Second}))...)
				equal(t, "beats", p.beats, tc.beats)
			})
		})
	}
}

// Outputs and the time to the first one are what the model does, whatever of it
// is emitted.
func TestOutputsAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reasoning := `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n"
		p, _ := produce(t, script(time.Second, reasoning, time.Second, enginetest.Delta("a"), enginetest.Stop), asksForStream)
		s := p.record.Snapshot()
		equal(t, "time to the first one", fmt.Sprint(s.FirstToken), "1s")
		equal(t, "model", s.Model, "m")
		equal(t, "events", fmt.Sprint(p.log.texts), "[a]")
	})
}
