package ingest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

var errDial = errors.New("dial: connection refused")

// A token stream becomes events, and what the backend says of it is expected.
func TestAStreamBecomesEvents(t *testing.T) {
	t.Parallel()
	p, call := produce(t, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Upstream", "1")
		return enginetest.Streams(enginetest.Delta("Hel"), enginetest.Delta("lo")+enginetest.Stop)(w, r)
	})
	p.want(t, "Hel|lo", "done stop")
	equal(t, "status", p.out.expected, http.StatusOK)
	equal(t, "upstream header", p.out.header.Get("X-Upstream")+p.out.header.Get("X-Before"), "1us")
	equal(t, "passed bytes", p.out.Body(), "")
	if call.Header != nil || call.Aborted || call.Err != nil || !p.HasEnded() {
		t.Errorf("%+v", call)
	}
}

// Whatever a backend and the next handler do, a token stream ends with one
// terminal event.
func TestEveryStreamHasOneEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		next    enginetest.Handler
		end     string
		status  int
		options []func(*ingest.Config, *production)
	}{
		"without a finish": {next: enginetest.Streams(enginetest.Delta("a")), end: "upstream_truncated", status: 502},
		"aborted": {next: func(w http.ResponseWriter, r *http.Request) error {
			_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
			panic(http.ErrAbortHandler)
		}, end: "upstream_truncated", status: 502},
		"an error event":          {next: enginetest.Streams(enginetest.Delta("a"), `data: {"error":{"message":"m","type":"overloaded_error"}}`+"\n\n"), end: "upstream_error", status: 529},
		"more after the end":      {next: enginetest.Streams(enginetest.Delta("a"), enginetest.Stop, enginetest.Delta("b"), enginetest.Stop), end: "done stop"},
		"an event that is broken": {next: enginetest.Streams(enginetest.Delta("a"), "data: {\"choices\":[\n\n"), end: "invalid_upstream", status: 502},
		"an event that is too large": {
			next: enginetest.Streams(enginetest.Delta("a"), enginetest.Delta(strings.Repeat("x", 2<<20))), end: "event_too_large", status: 502,
		},
		"an error of the handler": {next: func(w http.ResponseWriter, r *http.Request) error {
			_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
			return statusError(http.StatusBadGateway)
		}, end: "upstream_error", status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, call := produce(t, tc.next, tc.options...)
			p.want(t, "a", tc.end)
			if p.log.terminal.Kind == event.Failed {
				equal(t, "status", p.log.terminal.Err.Status, tc.status)
			}
			if call.Err != nil || call.Aborted {
				t.Errorf("the call has ended with %+v, which the log has told already", call)
			}
		})
	}
}

// What fails before there is any output is left to Caddy's error routes, unless
// a heartbeat has committed the response.
func TestFailureBeforeAnyOutput(t *testing.T) {
	t.Parallel()
	fails := func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Tried", "1")
		return errDial
	}
	aborts := func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }
	answers := func(status int, body string) enginetest.Handler {
		return func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			return enginetest.Say(w, body)
		}
	}
	t.Run("nothing is committed", func(t *testing.T) {
		t.Parallel()
		p, call := produce(t, fails, asksForStream)
		p.want(t, "", "")
		equal(t, "error", call.Err, errDial)
		equal(t, "header for the error routes", call.Header.Get("X-Tried"), "1")
		p, call = produce(t, aborts, asksForStream)
		p.want(t, "", "")
		equal(t, "aborted", call.Aborted, true)
		p, call = produce(t, func(w http.ResponseWriter, _ *http.Request) error {
			enginetest.EventStream(w)
			return errDial
		}, asksForStream)
		p.want(t, "", "")
		equal(t, "error after the header", call.Err, errDial)
	})
	for name, tc := range map[string]struct {
		next     enginetest.Handler
		end      string
		status   int
		upstream string
	}{
		"an error of the handler":            {fails, "upstream_error", 502, ""},
		"an error that stands for a status":  {func(http.ResponseWriter, *http.Request) error { return statusError(504) }, "upstream_error", 504, ""},
		"an aborted call":                    {aborts, "upstream_error", 502, ""},
		"an error status":                    {answers(503, `{"error": {"message": "no luck"}}`), "upstream_error", 503, `{"message":"no luck"}`},
		"an error status with another shape": {answers(429, `{"detail":"no"}`), "upstream_error", 429, `{"detail":"no"}`},
		"an error status with a text":        {answers(500, "oh\n\"no\""), "upstream_error", 500, `{"message":"oh\n\"no\""}`},
		"an error status without a body":     {answers(500, ""), "upstream_error", 500, ""},
		"an answer that is no stream":        {answers(200, `{}`), "invalid_upstream", 502, ""},
		"nothing at all":                     {func(http.ResponseWriter, *http.Request) error { return nil }, "invalid_upstream", 502, ""},
		"an empty stream":                    {enginetest.Streams(), "upstream_truncated", 502, ""},
	} {
		t.Run("after a heartbeat, "+name, func(t *testing.T) {
			t.Parallel()
			p, call := produce(t, tc.next, heartbeatHasCommitted)
			p.want(t, "", tc.end)
			equal(t, "status", p.log.terminal.Err.Status, tc.status)
			equal(t, "upstream", string(p.log.terminal.Err.Upstream), tc.upstream)
			equal(t, "passed bytes", p.out.Body(), "")
			if call.Err != nil || call.Aborted {
				t.Errorf("the call has ended with %+v, which the log has told already", call)
			}
		})
	}
}

// A stream that is not recognized goes on after heartbeats: its bytes can stand
// under the header that they have committed.
func TestUnknownStreamAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("data: {\"x\":1}\n\n", 20)
	p, call := produce(t, enginetest.Streams(body), heartbeatHasCommitted)
	p.want(t, "", "")
	equal(t, "continued", p.out.continued, true)
	equal(t, "body", p.out.Body(), body)
	if call.Err != nil || call.Aborted {
		t.Errorf("%+v", call)
	}
}

// A whole completion after a heartbeat was paid for: the client gets what it
// says.
func TestWholeCompletionAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		return enginetest.Say(w, `{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}`)
	}, heartbeatHasCommitted)
	p.want(t, "hello", "done stop")
}

// An error body that is told in a frame is bounded.
func TestErrorBodyInAFrameIsBounded(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusInternalServerError)
		for range 100 {
			_ = enginetest.Say(w, strings.Repeat("x", 1<<10))
		}
		return nil
	}, heartbeatHasCommitted)
	if n := len(p.log.terminal.Err.Upstream); n < 16<<10 || n > 17<<10 {
		t.Errorf("%d bytes", n)
	}
}

// A panic that is none of the ways to abort goes on, and Fail ends what it has
// left in the middle.
func TestPanicOfTheHandler(t *testing.T) {
	t.Parallel()
	var p *production
	defer func() {
		if v := recover(); v != "oops" {
			t.Errorf("recovered %v", v)
		}
		p.Fail()
		p.want(t, "a", "upstream_error")
	}()
	produce(t, func(w http.ResponseWriter, r *http.Request) error {
		_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
		panic("oops")
	}, func(_ *ingest.Config, q *production) { p = q })
}

// A call that we cancel ends its response by the cause; one whose only client
// has left has no client to tell.
func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cause error
		end   string
		late  bool
	}{
		"cancelled":                     {cause: fanout.ErrCancelled, end: "done cancelled"},
		"nobody reads":                  {cause: fanout.ErrAbandoned, end: "done cancelled"},
		"the drain deadline":            {cause: ingest.ErrDraining, end: "draining"},
		"the request body did not come": {cause: ingest.ErrRequestTimeout, end: "request_timeout"},
		"the log is full":               {cause: fanout.ErrTooLarge, end: "response_too_large"},
		"the client has left":           {cause: ingest.ErrClientGone},
		// as net/http: a read that is past its deadline ends the context of the request
		"the body is late": {cause: context.Canceled, end: "request_timeout", late: true},
	} {
		for at, next := range map[string]enginetest.Handler{
			"before the header": func(_ http.ResponseWriter, r *http.Request) error { return enginetest.Hang(r) },
			"in the stream": func(w http.ResponseWriter, r *http.Request) error {
				_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
				return enginetest.Hang(r)
			},
			// as reverse_proxy: it writes 499 once the context is cancelled
			"with a late header": func(w http.ResponseWriter, r *http.Request) error {
				_ = enginetest.Hang(r)
				w.WriteHeader(event.StatusClientClosedRequest)
				return nil
			},
		} {
			t.Run(name+" "+at, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p, call := produce(t, next, asksForStream, func(c *ingest.Config, p *production) {
						c.Late = func() bool { return tc.late }
						time.AfterFunc(time.Second, func() { p.cancel(tc.cause) })
					})
					equal(t, "end", p.log.end(), tc.end)
					equal(t, "took", p.took, time.Second)
					if tc.end != "" && (p.out.passed != nil || call.Err != nil) {
						t.Errorf("passed %+v, %+v", p.out.passed, call)
					}
				})
			})
		}
	}
}

// A log that takes no more ends the response and the call.
func TestFullLog(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, enginetest.Streams(enginetest.Delta("a"), enginetest.Delta("b")), func(_ *ingest.Config, p *production) {
		p.log.full = fanout.ErrTooLarge
	})
	p.want(t, "", "response_too_large")
	equal(t, "cancelled", p.ctx.Err() != nil, true)
}

// A backend that stays open after its end is cancelled after a moment; one that
// closes by itself can be used again.
func TestBackendThatStaysOpen(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]time.Duration{"closes": 100 * time.Millisecond, "stays open": time.Hour} {
		for _, option := range []func(*ingest.Config, *production){asksForStream, passthrough} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cancelled := false
					p, call := produce(t, func(w http.ResponseWriter, r *http.Request) error {
						_ = enginetest.Streams(enginetest.Delta("a")+enginetest.Stop)(w, r)
						if cancelled = !enginetest.Pause(r, stays); cancelled && stays == time.Hour {
							panic(http.ErrAbortHandler)
						}
						return nil
					}, option)
					equal(t, "cancelled", cancelled, stays == time.Hour)
					equal(t, "took", p.took, min(stays, 500*time.Millisecond))
					equal(t, "aborted", call.Aborted, false)
					equal(t, "terminal", p.Terminal().Kind, event.Done)
				})
			})
		}
	}
}

// The model, the format and the token counts are those that are known at the
// end: llama.cpp names its model in the last event only.
func TestIdentityThatComesLate(t *testing.T) {
	t.Parallel()
	var models []string
	var atEnd string
	p, _ := produce(t, enginetest.Streams(
		`data: {"index":0,"content":"a","stop":false}`+"\n\n",
		`data: {"index":0,"content":"","stop":true,"model":"late","stop_type":"eos","tokens_evaluated":3,"tokens_predicted":1}`+"\n\n",
	), path("/completion"), func(c *ingest.Config, p *production) {
		c.Identified = func(id observe.Identity) { models = append(models, id.Format+" "+id.Model) }
		c.Ended = func(*event.Event) { atEnd = p.record.Model() }
	})
	p.want(t, "a", "done stop")
	equal(t, "identities", strings.Join(models, ", "), "llamacpp-completion , llamacpp-completion late")
	equal(t, "the model, when the end is told", atEnd, "late")
	if usage := p.Usage(); usage == nil || usage.Input != 3 || usage.Output != 1 {
		t.Errorf("usage %+v", usage)
	}
}
