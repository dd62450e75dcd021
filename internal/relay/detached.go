package relay

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// Resumable answers a request whose response belongs to no client: with the
// response of the same call, or with a new one. Its body was read.
func (rt *Route) Resumable(q *Request, spec fanout.Spec) error {
	defer q.body.drop()
	for {
		if err := rt.resumable(q, spec); !errors.Is(err, errDiscarded) {
			return err
		}
	}
}

// resumable is Resumable until the response of the same call turns out to be none.
func (rt *Route) resumable(q *Request, spec fanout.Spec) error {
	ctx, cancel := ingest.WithCancelCause(context.WithoutCancel(q.Context()))
	d := &detached{Request: q, route: rt, ctx: ctx, cancel: cancel, own: new(ownResponse)}
	spec.Attachment, spec.AttachmentSize, spec.Ending, spec.Cancel = d.own, ownSize, d.ending, cancel
	if rt.Shared != nil {
		spec.AttachmentSize += copySize
		spec.Followed = d.isFollowed
	}
	response, found, err := rt.Registry.Begin(fanout.NewID(), spec)
	switch {
	case err != nil:
		cancel(nil)
		return rt.Refuse(q.W, q.Request, q.Dialect, RefusalOf(err))
	case found:
		cancel(nil)
		return rt.share(q, response)
	}
	d.response = response
	earlier, err := d.share(&spec)
	switch {
	case earlier != nil:
		defer earlier.holding(q)()
		d.withdraw(nil)
		return rt.share(q, earlier.response)
	case errors.Is(err, fanout.ErrUnknown), errors.Is(err, fanout.ErrExpired):
		d.withdraw(err)
		return errDiscarded // between two looks
	case err != nil:
		d.withdraw(err)
		return rt.Refuse(q.W, q.Request, q.Dialect, RefusalOf(err))
	}
	return d.begin()
}

// detached is a response that belongs to no client, as its producer has it.
type detached struct {
	*Request
	route    *Route
	response *fanout.Response
	own      *ownResponse
	producer *ingest.Producer
	ctx      context.Context // of the upstream call
	cancel   context.CancelCauseFunc
}

// ownResponse is what is kept with a response that is produced here.
type ownResponse struct {
	record atomic.Pointer[observe.Record] // nil before it is admitted
	copy   atomic.Pointer[responseCopy]   // nil where it has none
}

// What a response takes beside its log, in bytes: about a record and the names in
// it, and a copy.
const (
	ownSize  = 768
	copySize = 1 << 10
)

// recordOf returns the record of a response; nil where it was not admitted yet,
// or is produced elsewhere.
func recordOf(response *fanout.Response) *observe.Record {
	if own, ok := response.Attachment.(*ownResponse); ok {
		return own.record.Load()
	}
	return nil
}

// ending ends the record before clients can see the end of the response.
func (d *detached) ending(terminal *event.Event) {
	d.own.copy.Load().ended()
	record := d.own.record.Load()
	if record == nil {
		return
	}
	var usage *event.TokenUsage
	if result := resultOf(terminal); result != nil {
		usage = result.Usage
	}
	d.end(record, terminal, usage)
}

// produced is ending for the producer, which knows the counts of a response that
// has failed.
func (d *detached) produced(terminal *event.Event) {
	d.end(d.own.record.Load(), terminal, d.producer.Usage())
}

func (d *detached) end(record *observe.Record, terminal *event.Event, usage *event.TokenUsage) {
	outcome := observe.OutcomeOf(terminal)
	if errors.Is(context.Cause(d.ctx), fanout.ErrAbandoned) {
		outcome = event.OutcomeClientGone
	}
	if record.End(outcome, resultOf(terminal), usage) {
		record.Log(d.route.Logger)
	}
}

// drained returns what ends a response at the drain deadline. Where others may
// go on reading it, it has not failed, but is interrupted.
func (rt *Route) drained(response *fanout.Response) func() {
	terminal, cause := event.TerminalDraining, ingest.ErrDraining
	if rt.Shared != nil && mirrorOf(response) == nil {
		terminal, cause = event.TerminalInterrupted, ingest.ErrInterrupted
	}
	return func() { end(response, terminal, cause) }
}

// end ends a response: its clients have the end at once, whatever the upstream
// call does that is cancelled with it. One that has ended stays as it is.
func end(response *fanout.Response, terminal *event.Event, cause error) {
	response.End(terminal)
	response.Cancel(cause)
}

// begin produces the response in a goroutine of its own, and lets the client
// that has asked for it be the first to follow.
func (d *detached) begin() error {
	rt, response := d.route, d.response
	c, err := rt.newClient(d.Request, response, 0)
	if err != nil {
		d.withdraw(err)
		return err
	}
	defer response.Leave() // it reads while it waits, too: its grace must not begin
	leave, err := d.admit()
	if err != nil {
		d.withdraw(err)
		return rt.Refuse(d.W, d.Request.Request, response.Dialect, err)
	}
	response.Admit()
	clientWatch := rt.clientWatch(c.follower.Conn)
	defer clientWatch.StopAndWait()
	defer rt.joinReader(c, response).Leave()
	defer rt.Board.AddReader(c.follower)()
	record := rt.Board.Begin(rt.Metrics, response.ID(), response.Dialect, response.Channel, func(cause error) {
		end(response, event.TerminalCancelled, cause)
	})
	d.own.record.Store(record)
	d.Observed(record)
	defer func() {
		record.Sent(c.follower.Sent())
		record.Trace(c.Context())
	}()
	said := d.Request.body.says()
	if d.own.copy.Load().isLocal() {
		record.WasLocal()
	}
	record.Requested(said.model)
	c.follower.WantUsage(said.usage)
	hand := newHandover(c.follower.Conn, nil)
	own := d.W.Header().Clone() // before a heartbeat may commit it
	d.produce(hand)
	if wantsStream(d.Request, said.stream) {
		d.publish() // as early as can be: other devices wait for it
		d.producer.AwaitStream()
		clientWatch.EnableHeartbeat()
		c.mayLeave, hand.promised = true, true
	}
	up, forgetBody := d.upstreamRequest()
	hand.expect = func(status int, header http.Header) {
		forgetBody()
		d.expect(header, own)
		c.follower.Expect(status, header)
		clientWatch.EnableHeartbeat()
	}
	left := make(chan struct{})
	d.run(hand, up, func() {
		forgetBody()
		leave()
		close(left)
	})
	err = c.attend(hand)
	c.awaitPlace(response, left)
	return err
}

// leaveTime is how long the end of a request waits for the place of its response:
// a client that asks again as soon as it has had an answer must not find its own
// place taken. The answer does not wait.
const leaveTime = 100 * time.Millisecond

// awaitPlace waits a moment until the place of a response is given back, where the
// client has had the end of it. Who has cancelled it does not wait.
func (c *client) awaitPlace(response *fanout.Response, left <-chan struct{}) {
	_, terminal := response.Head()
	if terminal == nil || fanout.StatusOf(terminal) == fanout.Cancelled || !c.follower.Over() {
		return
	}
	select {
	case <-left:
	case <-time.After(leaveTime):
	}
}

// upstreamRequest returns the request as a call that outlives the client's is
// made, and what lets go of its body: a prompt is large and its answer takes
// long.
func (d *detached) upstreamRequest() (up *http.Request, forgetBody func()) {
	body := d.Request.body.detach()
	up, forget := d.Detach(d.ctx, d.producer, body.bytes)
	return up, func() {
		forget()
		body.drop()
	}
}

// expect takes in that the response is a stream, with the header of the upstream
// and what handlers before us have set of it.
func (d *detached) expect(header, own http.Header) {
	added := deliver.AddedFields(header, own)
	d.response.Describe(added, "", "")
	c := d.own.copy.Load()
	c.describe()
	if c.isLocal() {
		header[localOnlyField] = []string{"true"}
		added = maps.Clone(added)
		added[localOnlyField] = header[localOnlyField]
		d.response.Describe(added, "", "")
	}
	d.publish()
}

// publish tells that there is a response, or will be.
func (d *detached) publish() {
	d.response.Publish()
	d.own.copy.Load().announce()
}

// identified takes what becomes known of the backend.
func (d *detached) identified(id observe.Identity) {
	d.response.Describe(nil, id.Format, id.Model)
	d.own.copy.Load().describe()
}

// discard takes the response back: it is none.
func (d *detached) discard(why *event.Event) {
	d.response.Discard(why)
	d.own.copy.Load().discard()
}

// admit takes a place for the response. A response that is cancelled waits for
// none any longer.
func (d *detached) admit() (leave func(), err error) {
	ctx, cancel := context.WithCancel(d.Context())
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	if d.Admit == nil {
		return func() {}, nil
	}
	leave, err = d.Admit(ctx)
	if err != nil && errors.Is(context.Cause(d.ctx), fanout.ErrCancelled) {
		return nil, deliver.ErrCancelledEarly
	}
	return leave, err
}

// withdraw takes the response back: its call is not made.
func (d *detached) withdraw(cause error) {
	e := &event.Error{Code: event.CodeCancelled, Status: event.StatusClientClosedRequest, Message: "the request was withdrawn"}
	if refusal, ok := errors.AsType[*deliver.RefusalError](cause); ok && refusal.RetryAfter > 0 {
		e = refusal.Answer
	}
	d.discard(&event.Event{Kind: event.Failed, Err: e})
	d.cancel(cause)
}

// produce makes the producer.
func (d *detached) produce(out ingest.Outlet) {
	rt := d.route
	d.producer = ingest.New(ingest.Config{
		Path: d.Path, Dialect: d.response.Dialect, MaxEvent: rt.MaxEvent, Emits: rt.emits(d.response.Dialect),
		Log: d.log(), Out: out, Watch: rt.producerWatch(d.cancel, nil), Record: d.own.record.Load(), Logger: rt.Logger,
		Ctx: d.ctx, Cancel: d.cancel, Header: d.W.Header().Clone(), Status: rt.Status,
		Identified: d.identified, Ended: d.produced, Choices: d.Request.body.choices,
	})
}

// run runs the producer in a goroutine of its own. It joins those that are
// drained: the exit waits for it, and at the deadline ends its response, also
// one that no client reads.
func (d *detached) run(hand *handover, up *http.Request, leave func()) {
	member := d.route.Drain.Join(drain.Never, d.route.drained(d.response), nil)
	keep := d.Keep()
	go func() {
		defer keep()
		defer member.Leave()
		d.call(hand, up, leave)
		d.own.copy.Load().wait()
	}()
}

// call makes the upstream call.
func (d *detached) call(hand *handover, up *http.Request, leave func()) {
	defer leave()
	defer d.own.record.Load().Leave()
	defer d.producer.Watch.StopAndWait()
	call := run(d.route, d.producer, d.Request, up, d.cancel)
	if call.Err != nil && hand.isGone() {
		d.route.Logger.Warn("upstream call failed when its client had left",
			zap.String("response_id", d.response.ID()), zap.Error(call.Err))
	}
	if !d.producer.HasEnded() {
		d.discard(d.producer.Discarded(call))
	}
	d.response.Cancel(nil) // a kept response has no use for its call any more
	hand.done <- call
}

// run runs a producer that is not in its client's goroutine. Whatever happens,
// clients that read the log come to an end.
func run(rt *Route, p *ingest.Producer, q *Request, up *http.Request, cancel context.CancelCauseFunc) (call ingest.Call) {
	defer cancel(nil)
	defer func() {
		if v := recover(); v != nil {
			rt.Logger.Error("panic while a response was produced", zap.Any("panic", v), zap.Stack("stack"))
			p.Fail()
			call = ingest.Call{Aborted: true}
		}
	}()
	return p.Run(q.Next, up)
}
