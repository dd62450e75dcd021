package relay_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// However a response is produced, each piece of it reaches the client at the
// moment at which the backend has said it, and the last frame ends it.
func TestEachPieceComesAtOnce(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, script(time.Second, enginetest.Delta("a"), time.Second, enginetest.Delta("b")+enginetest.Delta("c"), time.Second, enginetest.Stop))
		x := s.ask(t, streams).wait()
		want := []enginetest.Arrival{
			{At: time.Second, Data: x.frame(1, "a")},
			{At: 2 * time.Second, Data: x.frame(2, "b") + x.frame(3, "c")},
			{At: 3 * time.Second, Data: x.stopped(4)},
		}
		if got := x.Arrivals(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		equal(t, "status", x.Status(), http.StatusOK)
		equal(t, "aborted", x.aborted, false)
		x.wantOutcome(t, "done")
		equal(t, "calls", s.calls.Load(), 1)
		synctest.Wait()
		equal(t, "streams that are left", s.count(t, "active_streams"), 0)
		equal(t, "bytes", s.count(t, "client_bytes_total"), len(x.Body()))
	})
}

// The upstream call asks for what can be read, and has the body that the client
// has sent.
func TestUpstreamRequest(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		var body, encoding string
		s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
			b, _ := io.ReadAll(r.Body)
			body, encoding = string(b), r.Header.Get("Accept-Encoding")
			return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
		})
		x := s.ask(t, streams, "Accept-Encoding", "gzip").wait()
		equal(t, "body", body, streams)
		if w != resumable { // there Detach makes the request
			equal(t, "Accept-Encoding", encoding, "identity")
		}
		equal(t, "the client's own", x.Header().Get("Accept-Encoding")+x.Request.Header.Get("Accept-Encoding"), "gzip")
	})
}

// The three limits hold in every way: before the header as a status, after the
// commit as a frame, and each cancels the upstream at its moment.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	limits := timeouts.Limits{FirstToken: 5 * time.Second, BetweenTokens: 2 * time.Second, Total: time.Minute, Heartbeat: 15 * time.Second}
	a := enginetest.Delta("a")
	steady := []any{a}
	for range 100 {
		steady = append(steady, time.Second, a)
	}
	for name, tc := range map[string]struct {
		backend   enginetest.Handler
		heartbeat time.Duration
		code      string
		committed bool
		took      time.Duration
	}{
		"no answer":            {script(never), 15 * time.Second, "first_token_timeout", false, 5 * time.Second},
		"no answer, heartbeat": {script(never), 4 * time.Second, "first_token_timeout", true, 5 * time.Second},
		"no output":            {script(": wait\n\n", never), 15 * time.Second, "first_token_timeout", false, 5 * time.Second},
		"a gap":                {script(time.Second, a, never), 15 * time.Second, "between_tokens_timeout", true, 3 * time.Second},
		"too long":             {script(steady...), 15 * time.Second, "total_timeout", true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryWay(t, func(t *testing.T, w way) {
				var closed time.Duration
				begin := time.Now()
				s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
					defer func() { closed = time.Since(begin) }()
					return tc.backend(w, r)
				}, func(s *site) {
					s.Limits = limits
					s.Limits.Heartbeat = tc.heartbeat
				})
				x := s.ask(t, streams).wait()
				equal(t, "took", x.took, tc.took)
				synctest.Wait()
				equal(t, "the upstream was closed", closed, tc.took)
				if tc.committed {
					equal(t, "status", x.Status(), http.StatusOK)
					x.wantError(t, tc.code)
				} else {
					x.wantStatus(t, http.StatusGatewayTimeout, tc.code)
				}
				equal(t, "aborted", x.aborted, false)
				x.wantOutcome(t, tc.code)
			})
		})
	}
}

// Heartbeats come after silence: before the header only where the request asks
// for a stream, in whatever way it does, and never in plain text.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	backend := script(50*time.Second, enginetest.Delta("a"), 50*time.Second, enginetest.Stop)
	before := []time.Duration{15 * time.Second, 30 * time.Second, 45 * time.Second}
	after := []time.Duration{65 * time.Second, 80 * time.Second, 95 * time.Second}
	both := slices.Concat(before, after)
	for name, tc := range map[string]struct {
		body, accept, path, dialect string
		want                        []time.Duration
	}{
		"asked for in the body":      {body: streams, want: both},
		"after a long prompt":        {body: `{"messages":"` + strings.Repeat("x", 100<<10) + `","stream":true}`, want: both},
		"by Accept":                  {body: unsaid, accept: "text/event-stream", want: both},
		"by a path":                  {body: unsaid, path: "/v1beta/models/g:streamGenerateContent", want: both},
		"not asked for":              {body: unsaid, want: after},
		"accepts JSON as well":       {body: unsaid, accept: "application/json, text/event-stream", want: after},
		"asked for, in plain":        {body: streams, dialect: "plain"},
		"asked for, openai":          {body: streams, dialect: "openai", want: both},
		"asked for, passed as it is": {body: streams, dialect: "passthrough", want: after},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryWay(t, func(t *testing.T, w way) {
				s := newSite(t, w, backend)
				x := s.request(t, tc.body, "Accept", tc.accept)
				if tc.path != "" {
					x.Path = tc.path
				}
				if tc.dialect != "" {
					x.Dialect = tc.dialect
				}
				x.send().wait()
				var got []time.Duration
				for _, arrival := range x.Arrivals() {
					if arrival.Data == ping {
						got = append(got, arrival.At)
					}
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("heartbeats at %v, want %v", got, tc.want)
				}
				equal(t, "all heartbeats", x.Heartbeats(), len(got))
			})
		})
	}
}

// A heartbeat commits the response. What fails after that is told in a frame of
// the dialect, and not by Caddy's error routes; before it, nothing is.
func TestFailuresBeforeAnyOutput(t *testing.T) {
	t.Parallel()
	errDial := errors.New("no connection")
	for name, tc := range map[string]struct {
		fail enginetest.Handler
		code string
	}{
		"the connection breaks": {func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }, "upstream_error"},
		"an error of the next handler": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("X-Tried", "1")
			return errDial
		}, "upstream_error"},
		"an error status": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusServiceUnavailable)
			return enginetest.Say(w, `{"error":{"message":"no luck"}}`)
		}, "upstream_error"},
		"no stream": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			return enginetest.Say(w, `{}`)
		}, "invalid_upstream"},
		"an empty stream": {enginetest.Streams(), "upstream_truncated"},
	} {
		for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
			t.Run(name+"/"+dialect, func(t *testing.T) {
				t.Parallel()
				inEveryWay(t, func(t *testing.T, w way) {
					for _, committed := range []bool{true, false} {
						s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
							_, _ = io.Copy(io.Discard, r.Body)
							if committed {
								enginetest.Pause(r, 20*time.Second)
							}
							return tc.fail(w, r)
						})
						x := s.request(t, streams)
						x.Dialect = dialect
						x.send().wait()
						synctest.Wait()
						equal(t, "streams that are left", s.count(t, "active_streams"), 0)
						if committed {
							equal(t, "begin", strings.HasPrefix(x.Body(), ping), true)
							contains(t, x.Body(), tc.code)
							equal(t, "aborted", x.aborted, dialect == "openai" || dialect == "anthropic")
							equal(t, "error", x.err, nil)
							x.wantOutcome(t, tc.code)
							continue
						}
						equal(t, "heartbeats", x.Heartbeats(), 0)
						switch name {
						case "the connection breaks":
							equal(t, "aborted", x.aborted, true)
						case "an error of the next handler":
							equal(t, "error", x.err, errDial)
							equal(t, "header for the error routes", x.Client.Header().Get("X-Tried"), "1")
						case "an error status":
							equal(t, "status", x.Status(), http.StatusServiceUnavailable)
							equal(t, "body", x.Body(), `{"error":{"message":"no luck"}}`)
						case "no stream":
							equal(t, "body", x.Body(), `{}`)
						case "an empty stream":
							equal(t, "status", x.Status(), http.StatusBadGateway)
						}
					}
				})
			})
		}
	}
}

// What is no token stream passes as it is in every way, with its trailers, and
// is not counted.
func TestWhatIsNoStreamPasses(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "7")
			w.Header().Set("Content-Encoding", "br")
			w.Header().Set("Set-Cookie", "x")
			w.WriteHeader(http.StatusCreated)
			_ = enginetest.Say(w, `{"a":`)
			enginetest.Pause(r, time.Minute)
			_ = enginetest.Say(w, `1}`)
			w.Header().Set("X-Trailer", "t")
			return nil
		})
		x := s.ask(t, unsaid).wait()
		equal(t, "answer", x.Body(), `{"a":1}`)
		equal(t, "status", x.Status(), http.StatusCreated)
		equal(t, "header", x.Got().Get("Content-Length")+x.Got().Get("Content-Encoding")+x.Got().Get("Set-Cookie"), "7brx")
		equal(t, "fields of ours", x.Got().Get("X-Response-Id")+x.Got().Get("Cache-Control"), "")
		equal(t, "trailer", x.Client.Header().Get("X-Trailer"), "t")
		equal(t, "early hints", len(x.Informed()) == 1, w == attached)
		if got := x.Arrivals(); len(got) != 2 || got[0].At != 0 || got[1].At != time.Minute {
			t.Errorf("it came at %v", got)
		}
		synctest.Wait()
		x.wantOutcome(t, "")
		equal(t, "streams that are left", s.count(t, "active_streams"), 0)
	})
}

// A status without a body passes, whatever its content type.
func TestNoContentPasses(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
			x := newSite(t, w, func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(status)
				return nil
			}).ask(t, streams).wait()
			equal(t, "status", x.Status(), status)
			equal(t, "body", x.Body(), "")
		}
	})
}

// A stream that is not recognized passes byte for byte in every way, decoded
// where it is compressed, with its trailers; it ends well only where it is whole.
func TestUnknownStreamsPass(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"recognized at its end": 3, "recognized early": 2000} {
		body := strings.Repeat("data: {\"jsonrpc\":\"2.0\"}\n\n", n)
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		backend := func(coding, sent string, aborts bool) enginetest.Handler {
			return func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Content-Encoding", coding)
				_ = enginetest.Streams(sent)(w, r)
				w.Header().Set("X-Trailer", "t")
				if aborts {
					panic(http.ErrAbortHandler)
				}
				return nil
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryWay(t, func(t *testing.T, w way) {
				for what, tc := range map[string]struct {
					backend enginetest.Handler
					whole   bool
				}{
					"whole":           {backend("identity", body, false), true},
					"aborted":         {backend("identity", body, true), false},
					"compressed":      {backend("gzip", zipped.String(), false), true},
					"compressed, cut": {backend("gzip", zipped.String()[:zipped.Len()-1], false), false},
				} {
					s := newSite(t, w, tc.backend)
					x := s.request(t, unsaid)
					x.Path = "/mcp"
					x.send().wait()
					equal(t, what+", aborted", x.aborted, !tc.whole)
					if tc.whole {
						equal(t, what+", body", x.Body() == body, true)
						equal(t, what+", trailer", x.Client.Header().Get("X-Trailer"), "t")
					}
					equal(t, what+", warnings", s.logs.FilterMessageSnippet("unrecognized stream").Len(), 1)
				}
			})
		})
	}
}

// A client that leaves a response that is bound to it cancels the upstream at
// once.
func TestLeavingCancels(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]any{"before the header": {never}, "in the stream": {enginetest.Delta("a"), never}} {
		for _, w := range []way{attached, tied, dropping} {
			t.Run(name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t, w, script(steps...))
					x := s.ask(t, streams)
					time.Sleep(time.Second)
					x.leave()
					x.wait()
					equal(t, "took", x.took, time.Second)
					x.wantOutcome(t, "client_gone")
					equal(t, "streams that are left", s.count(t, "active_streams"), 0)
				})
			})
		}
	}
}

// A panic of a next handler ends the response: where it is in the goroutine of
// the request, it goes on to the server.
func TestPanicOfTheNextHandler(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
			_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
			panic("oops")
		})
		x := s.ask(t, streams).wait()
		synctest.Wait()
		equal(t, "streams that are left", s.count(t, "active_streams"), 0)
		if w == attached {
			equal(t, "panic", x.panicked, any("oops"))
			return
		}
		x.wantError(t, "upstream_error")
		equal(t, "logged", s.logs.FilterMessageSnippet("panic").Len(), 1)
	})
}

// What a handler before us has set reaches the client, unless the upstream says
// otherwise.
func TestHeaderOfHandlersBeforeUs(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("X-Both", "upstream")
			w.Header().Del("X-Deleted")
			return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
		})
		x := s.request(t, streams)
		for _, field := range []string{"X-Before", "X-Both", "X-Deleted"} {
			x.Client.Header().Set(field, "before")
		}
		x.send().wait()
		equal(t, "header", x.Got().Get("X-Before")+" "+x.Got().Get("X-Both")+" "+x.Got().Get("X-Deleted"), "before upstream ")
	})
}
