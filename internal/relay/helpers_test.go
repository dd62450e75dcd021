package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

const (
	chatPath = "/v1/chat/completions"
	streams  = `{"stream":true}`
	unsaid   = `{}`
	ping     = ": ping\n"
)

// way is how a response is produced.
type way struct {
	name   string
	pace   deliver.Pace
	resume bool
}

// The ways. Rules that hold in all of them are tested in all of them.
var (
	attached  = way{"attached", deliver.Pace{Policy: deliver.SlowBlock, Events: 64}, false}
	tied      = way{"tied", deliver.Pace{Policy: deliver.SlowDisconnect, Events: 64}, false}
	dropping  = way{"dropping", deliver.Pace{Policy: deliver.SlowDrop, Events: 64}, false}
	resumable = way{"resumable", deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64, Resumable: true}, true}

	ways = []way{attached, tied, dropping, resumable}
)

// site is a route with everything around it.
type site struct {
	*relay.Route
	way   way
	next  enginetest.Handler
	calls atomic.Int64 // of next
	group *drain.Group
	spec  fanout.Spec // of resumable responses
	logs  *observer.ObservedLogs
	admit func(ctx context.Context) (leave func(), err error)
}

// newSite returns a route before a next handler. It must be in a bubble.
func newSite(t *testing.T, w way, next enginetest.Handler, options ...func(*site)) *site {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	metrics, _ := observe.NewMetrics(func() int { return 0 })
	s := &site{
		way: w, next: next, logs: logs, group: drain.New(drain.Config{Spread: 5 * time.Second, Retry: 2 * time.Second}),
		spec: fanout.Spec{Keep: 10 * time.Minute, Grace: 30 * time.Second, MaxSize: 4 << 20},
	}
	s.Route = &relay.Route{
		Logger: zap.New(core), Metrics: metrics, Board: observe.NewBoard(), Registry: fanout.NewRegistry(), Memory: new(budget), Drain: s.group,
		MaxEvent: 1 << 20, Pace: w.pace, WriteTimeout: 30 * time.Second, ReadTimeout: 30 * time.Second,
		Limits: timeouts.Limits{FirstToken: 5 * time.Minute, BetweenTokens: 2 * time.Minute, Heartbeat: 15 * time.Second},
		Status: func(error) int { return 0 },
	}
	for _, option := range options {
		option(s)
	}
	t.Cleanup(func() { _ = s.Registry.Destruct() })
	return s
}

// successor returns the site of the next configuration.
func (s *site) successor() *site {
	route := *s.Route
	next := &site{Route: &route, way: s.way, next: s.next, group: drain.New(drain.Config{}), spec: s.spec, logs: s.logs}
	next.Drain = next.group
	return next
}

// inEveryWay runs a test in a bubble of its own for each way.
func inEveryWay(t *testing.T, f func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, w) })
		})
	}
}

// count returns a metric.
func (s *site) count(t *testing.T, name string) int {
	t.Helper()
	return int(enginetest.Scrape(t, s.Metrics)[name])
}

// budget is what a request body may take.
type budget struct {
	used, most atomic.Int64
	refuses    atomic.Bool
}

var errFull = errors.New("no room")

// Reserve implements relay.Memory.
func (b *budget) Reserve(n int) error {
	if b.refuses.Load() {
		return errFull
	}
	b.most.Store(max(b.most.Load(), b.used.Add(int64(n))))
	return nil
}

// Release implements relay.Memory.
func (b *budget) Release(n int) { b.used.Add(int64(-n)) }

// exchange is a request, and what has come of it.
type exchange struct {
	*enginetest.Client
	*relay.Request
	site     *site
	leave    context.CancelFunc // the client leaves
	done     chan struct{}      // closed when the request has ended
	err      error              // for Caddy's error routes
	aborted  bool               // the connection
	took     time.Duration
	records  []*observe.Record
	followed []observe.Followed
	panicked any
}

// request makes a request without sending it. fields are name and value in turn.
func (s *site) request(t *testing.T, body string, fields ...string) *exchange {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(body))
	for field := range slices.Chunk(fields, 2) {
		r.Header.Set(field[0], field[1])
	}
	x := &exchange{Client: enginetest.NewClient(), site: s, leave: leave, done: make(chan struct{})}
	x.Request = &relay.Request{
		Request: r, W: x.Client, Path: r.URL.Path, Dialect: "text", Admit: s.admit,
		Next: enginetest.Handler(func(w http.ResponseWriter, r *http.Request) error {
			s.calls.Add(1)
			return s.next(w, r)
		}),
		Keep: func() (release func()) { return func() {} },
		Cut:  func() { _ = x.SetWriteDeadline(time.Unix(1, 0)) },
		Detach: func(ctx context.Context, _ http.ResponseWriter, body []byte) (*http.Request, func()) {
			up := r.Clone(ctx)
			up.Body = io.NopCloser(bytes.NewReader(body))
			return up, func() {}
		},
		Observed: func(record *observe.Record) { x.records = append(x.records, record) },
		Followed: func(f observe.Followed) { x.followed = append(x.followed, f) },
	}
	return x
}

// serve has a request served by f, in a goroutine of its own, as a server does.
func (x *exchange) serve(f func(q *relay.Request) error) *exchange {
	begin := time.Now()
	go func() {
		defer close(x.done)
		defer func() { x.took = time.Since(begin) }()
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				x.aborted = true
			default:
				x.panicked = v
			}
			x.Finish()
		}()
		x.err = f(x.Request)
	}()
	return x
}

// send sends a request to the route, as its handler does.
func (x *exchange) send() *exchange {
	return x.serve(func(q *relay.Request) error {
		s := x.site
		if !s.way.resume || q.Dialect == "passthrough" {
			return s.Bound(q)
		}
		body, err := s.ReadBody(q, 1<<20)
		if err != nil {
			return s.Refuse(q.W, q.Request, q.Dialect, err)
		}
		if eventID := q.Header.Get("Last-Event-ID"); eventID != "" {
			q.DropBody()
			return s.Resume(q, s.spec.Access, eventID)
		}
		spec := s.spec
		spec.Dialect = q.Dialect
		if key := q.Header.Get("Idempotency-Key"); key != "" {
			spec.Call = fanout.Call{Key: key, Body: string(body)}
		}
		return s.Resumable(q, spec)
	})
}

// ask sends a request.
func (s *site) ask(t *testing.T, body string, fields ...string) *exchange {
	t.Helper()
	return s.request(t, body, fields...).send()
}

// wait waits for the end of the request.
func (x *exchange) wait() *exchange {
	<-x.done
	return x
}

// id is the id of the response.
func (x *exchange) id() string { return x.Got().Get("X-Response-Id") }

// frame is a frame of the dialect text with a text, as the client gets it.
func (x *exchange) frame(index int, text string) string {
	return x.idLine(index) + "data: {\"text\":" + strconv.Quote(text) + "}\n\n"
}

func (x *exchange) idLine(index int) string {
	if x.site.way.resume {
		return "id: " + x.id() + ":" + strconv.Itoa(index) + "\n"
	}
	return "id: " + strconv.Itoa(index) + "\n"
}

// stopped is the last frame of a response that has stopped.
func (x *exchange) stopped(index int) string {
	return x.idLine(index) + "event: done\ndata: {\"finish_reason\":\"stop\"}\n\n"
}

// wantError checks that the response has ended with an error frame.
func (x *exchange) wantError(t *testing.T, code string) {
	t.Helper()
	_, last, ok := strings.Cut(x.Body(), "event: error\n")
	if !ok || !strings.Contains(last, `"code":"`+code+`"`) {
		t.Errorf("no frame with the error %s in %q", code, x.Body())
	}
}

// wantStatus checks that the response is a refusal.
func (x *exchange) wantStatus(t *testing.T, status int, code string) {
	t.Helper()
	equal(t, "status", x.Status(), status)
	if !strings.Contains(x.Body(), `"code":"`+code+`"`) {
		t.Errorf("no error %s in %q", code, x.Body())
	}
}

// wantOutcome checks how the record of the response has ended.
func (x *exchange) wantOutcome(t *testing.T, outcome string) {
	t.Helper()
	if len(x.records) != 1 {
		t.Fatalf("%d records", len(x.records))
	}
	equal(t, "outcome", string(x.records[0].Snapshot().Outcome), outcome)
}

// script is a backend that pauses and says things in turn: a duration is a
// pause, a string is said. It sends its header with the first string, and ends
// as reverse_proxy does when its call is cancelled.
func script(steps ...any) enginetest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.Copy(io.Discard, r.Body)
		begun := false
		for _, step := range steps {
			var wait time.Duration
			text, isText := step.(string)
			if !isText {
				wait = step.(time.Duration)
			}
			switch {
			case wait > 0 && enginetest.Pause(r, wait):
			case r.Context().Err() != nil && begun:
				panic(http.ErrAbortHandler)
			case r.Context().Err() != nil:
				w.WriteHeader(499)
				return nil
			default:
				if !begun {
					enginetest.EventStream(w)
					begun = true
				}
				if err := enginetest.Say(w, text); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
		}
		return nil
	}
}

// never is longer than any limit.
const never = 24 * time.Hour

// equal compares what something is with what it should be.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// contains checks that a text has a part.
func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is not in %q", part, text)
	}
}
