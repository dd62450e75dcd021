package ingest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

const chatPath = "/v1/chat/completions"

// recordingLog is a log that keeps what is put into it.
type recordingLog struct {
	texts    []string
	terminal *event.Event
	full     error // what Append returns from now on
}

// ID implements ingest.Log.
func (l *recordingLog) ID() string { return "id" }

// Append implements ingest.Log.
func (l *recordingLog) Append(events []event.Event) error {
	for i := range events {
		if l.full != nil {
			return l.full
		}
		l.texts = append(l.texts, string(events[i].Text))
	}
	return nil
}

// End implements ingest.Log.
func (l *recordingLog) End(terminal *event.Event) bool {
	if l.terminal != nil {
		return false
	}
	l.terminal = terminal
	return true
}

// end says in a word how the response has ended.
func (l *recordingLog) end() string {
	switch {
	case l.terminal == nil:
		return ""
	case l.terminal.Kind == event.Done:
		return "done " + string(l.terminal.Result.Finish)
	default:
		return string(l.terminal.Err.Code)
	}
}

// outlet is the client that has asked, as a Producer sees it.
type outlet struct {
	*enginetest.Client
	committed bool          // a heartbeat has committed a stream
	takes     time.Duration // how long the client takes for what is delivered
	expected  int           // the status of a stream
	header    http.Header   // likewise
	passed    *ingest.Head
	continued bool // a stream passes after heartbeats
	finished  bool // trailers were handed over
}

// Inform implements ingest.Outlet.
func (o *outlet) Inform(status int, _ http.Header) { o.WriteHeader(status) }

// Expect implements ingest.Outlet.
func (o *outlet) Expect(status int, header http.Header) { o.expected, o.header = status, header }

// Pass implements ingest.Outlet.
func (o *outlet) Pass(head ingest.Head) http.ResponseWriter {
	if o.committed {
		return nil
	}
	head.Header = head.Header.Clone()
	o.passed = &head
	o.WriteHeader(head.Status)
	return o
}

// Continue implements ingest.Outlet.
func (o *outlet) Continue() http.ResponseWriter {
	o.continued = true
	return o
}

// Seal implements ingest.Outlet.
func (o *outlet) Seal() bool { return o.committed }

// Deliver implements ingest.Outlet.
func (o *outlet) Deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Block()
	time.Sleep(o.takes)
	watch.Delivered()
	return at, nil
}

// Finish is called when the trailers are there.
func (o *outlet) Finish() { o.finished = true }

// production is a Producer with everything around it.
type production struct {
	*ingest.Producer
	out    *outlet
	log    *recordingLog
	record *observe.Record
	logs   *observer.ObservedLogs
	limits timeouts.Limits
	asks   bool // the request asks for a stream
	beats  int
	began  time.Time
	took   time.Duration // until the end of Run
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// produce lets a next handler produce a response, and returns what has come of
// it.
func produce(t *testing.T, next enginetest.Handler, options ...func(*ingest.Config, *production)) (*production, ingest.Call) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	p := &production{out: &outlet{Client: enginetest.NewClient()}, log: new(recordingLog), logs: logs, began: time.Now()}
	p.ctx, p.cancel = ingest.WithCancelCause(t.Context())
	defer p.cancel(nil)
	metrics, _ := observe.NewMetrics(func() int { return 0 })
	p.record = observe.NewBoard().Begin(metrics, "id", "text", "", nil)
	defer p.record.Leave()
	c := ingest.Config{
		Path: chatPath, Dialect: "text", MaxEvent: 1 << 20,
		Emits: func(kind event.Kind) bool { return kind == event.Text },
		Log:   p.log, Out: p.out, Record: p.record, Logger: zap.New(core),
		Ctx: p.ctx, Cancel: p.cancel, Header: http.Header{"X-Before": {"us"}},
		Status:  func(err error) int { return statusOf(err) },
		Choices: func() int { return 1 },
	}
	for _, option := range options {
		option(&c, p)
	}
	c.Watch = timeouts.New(p.limits, func(e *timeouts.TimeoutError) { p.cancel(e) }, func() { p.beats++ })
	defer c.Watch.StopAndWait()
	p.Producer = ingest.New(c)
	if p.asks {
		p.AwaitStream()
	}
	r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, c.Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	call := p.Run(next, r)
	p.took = time.Since(p.began)
	p.out.Client.Finish()
	return p, call
}

// statusError is an error of a next handler that stands for a status.
type statusError int

// Error implements the error interface.
func (e statusError) Error() string { return http.StatusText(int(e)) }

func statusOf(err error) int {
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	return 0
}

// The options of produce.

func asksForStream(_ *ingest.Config, p *production) { p.asks = true }

func heartbeatHasCommitted(_ *ingest.Config, p *production) { p.asks, p.out.committed = true, true }

func passthrough(c *ingest.Config, _ *production) { c.Dialect = "passthrough" }

func path(path string) func(*ingest.Config, *production) {
	return func(c *ingest.Config, _ *production) { c.Path = path }
}

func limits(l timeouts.Limits) func(*ingest.Config, *production) {
	return func(_ *ingest.Config, p *production) { p.limits = l }
}

// want compares what the log has.
func (p *production) want(t *testing.T, text, end string) {
	t.Helper()
	if got := strings.Join(p.log.texts, "|"); got != text || p.log.end() != end {
		t.Errorf("the log has %q and ends with %q, want %q and %q", got, p.log.end(), text, end)
	}
}

// equal compares what something is with what it should be.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
