package relay

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// maxHeld is how much of a request body is read before its request takes a place,
// in bytes: what a client has to do by itself comes first. A longer body streams
// on from there.
const maxHeld = 1 << 20

// Bound answers a request whose response belongs to its client alone.
func (rt *Route) Bound(q *Request) error {
	q.body = rt.newBody(q)
	defer q.body.drop()
	if q.Admit != nil {
		if err := q.body.hold(maxHeld); err != nil {
			return rt.Refuse(q.W, q.Request, q.Dialect, err)
		}
		leave, err := q.Admit(q.Context())
		if err != nil {
			return rt.Refuse(q.W, q.Request, q.Dialect, err)
		}
		defer leave()
	}
	if q.Dialect != emit.DialectPassthrough && (rt.Pace.Policy == deliver.SlowDrop || rt.Pace.Policy == deliver.SlowDisconnect) {
		return rt.tied(q)
	}
	return rt.attached(q)
}

// bound is a response that belongs to its only client.
type bound struct {
	*Request
	route    *Route
	stream   *fanout.Stream
	follower *deliver.Follower
	record   *observe.Record
	producer *ingest.Producer
	ctx      context.Context // of the upstream call
	cancel   context.CancelCauseFunc
}

// newBound returns a response without its producer. window is how many events
// its log keeps; 0: what the client has not had.
func (rt *Route) newBound(q *Request, window int) *bound {
	b := &bound{Request: q, route: rt, stream: fanout.NewStream(fanout.NewID(), 0)}
	if window > 0 {
		b.stream.Window(window)
	}
	b.ctx, b.cancel = ingest.WithCancelCause(q.Context())
	b.record = rt.Board.Begin(rt.Metrics, b.stream.ID(), q.Dialect, "", b.cancel)
	conn := rt.newConn(q, b.stream.ID(), q.Dialect, false, func() identity { return b.record })
	b.follower = deliver.NewFollower(conn, b.stream.Start(), rt.Pace)
	q.Observed(b.record)
	return b
}

// produce makes the producer.
func (b *bound) produce(watch *timeouts.Watch, out ingest.Outlet) {
	b.producer = ingest.New(ingest.Config{
		Path: b.Path, Dialect: b.Dialect, MaxEvent: b.route.MaxEvent, Emits: b.route.emits(b.Dialect),
		Log: b.stream, Out: out, Watch: watch, Record: b.record, Logger: b.route.Logger,
		Ctx: b.ctx, Cancel: b.cancel, Header: b.W.Header().Clone(), Status: b.route.Status,
		Choices: b.body.choices, Late: b.body.Late,
	})
}

// drained ends the response at the drain deadline.
func (b *bound) drained() { b.cancel(ingest.ErrDraining) }

// report ends the record of the response: with what the client did to it, or
// else with what has come of it. What has passed and is no stream is not
// counted.
func (b *bound) report() {
	defer b.record.Leave()
	b.record.Sent(b.follower.Sent())
	terminal := b.producer.Terminal()
	outcome := b.follower.Fate(b.Request.Request)
	switch {
	case b.producer.Passed(), b.producer.PassedWhole():
		outcome = "" // it is no stream, or the client has had all of it
	case errors.Is(context.Cause(b.ctx), ingest.ErrDraining):
		outcome = event.OutcomeDrained
	}
	if outcome == "" && terminal != nil {
		outcome = observe.OutcomeOf(terminal)
	}
	if outcome != "" && b.record.End(outcome, resultOf(terminal), b.producer.Usage()) {
		b.record.Log(b.route.Logger)
	}
	b.record.Trace(b.Context())
}

// resultOf returns how a response is complete, nil where it is not.
func resultOf(terminal *event.Event) *event.Result {
	if terminal == nil || terminal.Kind != event.Done {
		return nil
	}
	return terminal.Result
}

// conclude ends the client's request after its response. The error is that of
// the next handlers, for Caddy's error routes.
func (b *bound) conclude(call ingest.Call) error {
	b.follower.Conclude(b.Request.Request, call.Aborted)
	b.follower.Adopt(call.Header)
	return call.Err
}

// attached lets the next handlers produce a response in the goroutine of its
// only client's request: the client's leaving cancels the upstream, and a client
// that takes no more holds the upstream back.
func (rt *Route) attached(q *Request) error {
	b := rt.newBound(q, 0)
	defer b.cancel(nil)
	defer rt.Drain.Join(drain.Never, b.drained, nil).Leave()
	defer rt.Board.AddReader(b.follower)()
	var beat func()
	if q.Dialect != emit.DialectPlain {
		beat = b.follower.Beat
	}
	watch := rt.producerWatch(b.cancel, beat)
	defer watch.StopAndWait()
	b.produce(watch, attachedOutlet{connOutlet{b.follower.Conn}, b})
	defer b.report()
	up := q.upstreamRequest(b.ctx, b.cancel, b.follower.Conn, b.record, b.producer.AwaitStream)
	call := b.producer.Run(q.Next, up)
	call.Aborted = call.Aborted || b.producer.Err() != nil
	return b.conclude(call)
}

// connOutlet is the part of an ingest.Outlet that is the client's Conn.
type connOutlet struct{ *deliver.Conn }

// Pass implements ingest.Outlet.
func (o connOutlet) Pass(h ingest.Head) http.ResponseWriter {
	return o.Conn.Pass(h.Status, h.Header, h.Stream, h.Comments)
}

// attachedOutlet is the outlet of a producer that runs in the goroutine of its
// only client.
type attachedOutlet struct {
	connOutlet
	bound *bound
}

// Deliver implements ingest.Outlet. What the client has had is forgotten.
func (o attachedOutlet) Deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Block()
	err := o.bound.follower.Step()
	watch.Delivered()
	switch {
	case err != nil:
	case o.bound.follower.Outgrown():
		o.bound.cancel(fanout.ErrTooLarge) // nobody is left who reads what more there is
	case !o.bound.follower.Over():
		o.bound.stream.Recycle()
	}
	return at, err
}

// Hijack implements ingest.Hijacker.
func (o attachedOutlet) Hijack() (net.Conn, *bufio.ReadWriter, http.ResponseWriter, error) {
	conn, rw, err := http.NewResponseController(o.bound.W).Hijack()
	return conn, rw, o.bound.W, err
}

// Interface guards
var (
	_ ingest.Outlet   = attachedOutlet{}
	_ ingest.Hijacker = attachedOutlet{}
)
