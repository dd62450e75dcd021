package relay

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

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
		ctx, cancel := ingest.WithCancelCause(context.WithoutCancel(q.Context()))
		d := &detached{Request: q, route: rt, ctx: ctx, cancel: cancel, record: new(recordRef)}
		spec.Attachment, spec.AttachmentSize, spec.Ending, spec.Cancel = d.record, recordSize, d.ending, cancel
		response, found, err := rt.Registry.Begin(fanout.NewID(), spec)
		switch {
		case err != nil:
			cancel(nil)
			return rt.Refuse(q.W, q.Request, q.Dialect, RefusalOf(err))
		case !found:
			d.response = response
			return d.begin()
		}
		cancel(nil)
		if err := rt.share(q, response); !errors.Is(err, errDiscarded) {
			return err
		}
	}
}

// detached is a response that belongs to no client, as its producer has it.
type detached struct {
	*Request
	route    *Route
	response *fanout.Response
	record   *recordRef
	producer *ingest.Producer
	ctx      context.Context // of the upstream call
	cancel   context.CancelCauseFunc
}

// recordRef is the record of a response, which is kept as long as the response;
// nil before it is admitted.
type recordRef = atomic.Pointer[observe.Record]

// recordSize is about what a record and the names in it take, in bytes.
const recordSize = 768

// recordOf returns the record of a response; nil where it was not admitted yet.
func recordOf(response *fanout.Response) *observe.Record {
	if ref, ok := response.Attachment.(*recordRef); ok {
		return ref.Load()
	}
	return nil
}

// ending ends the record before clients can see the end of the response.
func (d *detached) ending(terminal *event.Event) {
	record := d.record.Load()
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
	d.end(d.record.Load(), terminal, d.producer.Usage())
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

// drained ends the response at the drain deadline.
func (d *detached) drained() { end(d.response, event.TerminalDraining, ingest.ErrDraining) }

// end ends a response: its clients have the end at once, whatever the upstream
// call does that is cancelled with it. One that has ended stays as it is.
func end(response *fanout.Response, terminal *event.Event, cause error) {
	response.End(terminal)
	response.Cancel(cause)
}

// Cancel ends a response on request, and returns its final status.
func Cancel(response *fanout.Response) fanout.Status {
	end(response, event.TerminalCancelled, fanout.ErrCancelled)
	_, terminal := response.Head()
	return fanout.StatusOf(terminal)
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
	defer observe.AddReader(c.follower)()
	record := observe.NewRecord(rt.Metrics, response.ID(), response.Dialect, response.Channel, func(cause error) {
		end(response, event.TerminalCancelled, cause)
	})
	d.record.Store(record)
	d.Observed(record)
	defer func() {
		record.Sent(c.follower.Sent())
		record.Trace(c.Context())
	}()
	said := d.Request.body.says()
	record.Requested(said.model)
	c.follower.WantUsage(said.usage)
	hand := newHandover(c.follower.Conn, nil)
	own := d.W.Header().Clone() // before a heartbeat may commit it
	d.produce(hand)
	if wantsStream(d.Request, said.stream) {
		response.Publish() // as early as can be: other devices wait for it
		d.producer.AwaitStream()
		clientWatch.EnableHeartbeat()
		c.mayLeave, hand.promised = true, true
	}
	body := d.Request.body.detach()
	up, forget := d.Detach(d.ctx, d.producer, body.bytes)
	forgetBody := func() {
		forget()
		body.drop() // a prompt is large and its answer takes long
	}
	hand.expect = func(status int, header http.Header) {
		forgetBody()
		response.Describe(deliver.AddedFields(header, own), "", "")
		response.Publish()
		c.follower.Expect(status, header)
		clientWatch.EnableHeartbeat()
	}
	d.run(hand, up, func() {
		body.drop()
		leave()
	})
	return c.attend(hand)
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
	d.response.Discard(&event.Event{Kind: event.Failed, Err: e})
	d.cancel(cause)
}

// produce makes the producer.
func (d *detached) produce(out ingest.Outlet) {
	rt := d.route
	d.producer = ingest.New(ingest.Config{
		Path: d.Path, Dialect: d.response.Dialect, MaxEvent: rt.MaxEvent, Emits: rt.emits(d.response.Dialect),
		Log: d.response, Out: out, Watch: rt.producerWatch(d.cancel, nil), Record: d.record.Load(), Logger: rt.Logger,
		Ctx: d.ctx, Cancel: d.cancel, Header: d.W.Header().Clone(), Status: rt.Status,
		Identified: func(id observe.Identity) { d.response.Describe(nil, id.Format, id.Model) },
		Ended:      d.produced, Choices: d.Request.body.choices,
	})
}

// run runs the producer in a goroutine of its own. It joins those that are
// drained: the exit waits for it, and at the deadline ends its response, also
// one that no client reads.
func (d *detached) run(hand *handover, up *http.Request, leave func()) {
	member := d.route.Drain.Join(drain.Never, d.drained, nil)
	go func() {
		defer member.Leave()
		defer leave()
		defer d.record.Load().Leave()
		defer d.producer.Watch.StopAndWait()
		call := run(d.route, d.producer, d.Request, up, d.cancel)
		if call.Err != nil && hand.isGone() {
			d.route.Logger.Warn("upstream call failed when its client had left",
				zap.String("response_id", d.response.ID()), zap.Error(call.Err))
		}
		if !d.producer.HasEnded() {
			d.response.Discard(d.producer.Discarded(call))
		}
		d.response.Cancel(nil) // a kept response has no use for its call any more
		hand.done <- call
	}()
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
