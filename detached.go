package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// serveResumable answers a request of a route with resume: by going on with a
// response, by attaching to the one of the same idempotency key, or with a new
// one, which does not belong to this client.
func (h *Handler) serveResumable(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, dialect string, as fanout.Access) error {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	body, err := readBody(r, h.Resume.MaxBody)
	if err != nil {
		return refuseWith(w, r, dialect, err)
	}
	if lastID := r.Header.Get("Last-Event-ID"); lastID != "" {
		return h.resumeResponse(w, r, as, lastID)
	}
	spec := fanout.Spec{
		Access:  as,
		Dialect: dialect,
		Call:    h.Resume.call(r, as, body),
		Channel: repl.ReplaceAll(h.Resume.Channel, ""),
		Keep:    time.Duration(h.Resume.Keep),
		Grace:   time.Duration(h.Resume.Grace),
		MaxSize: int(h.Resume.MaxSize),
	}
	for {
		ctx, cancel := withCancelCause(context.WithoutCancel(r.Context()))
		spec.Cancel = cancel
		response, found, err := h.app.shared.registry.Begin(fanout.NewID(), spec)
		switch {
		case err != nil:
			cancel(nil)
			return refuseWith(w, r, dialect, refusal(err))
		case !found:
			return h.begin(w, r, next, upstreamCall{upstream{ctx, cancel}, response, body})
		}
		cancel(nil)
		if err := h.attach(w, r, response, body); !errors.Is(err, errDiscarded) {
			return err
		}
	}
}

// errDiscarded says that a response turned out to be none, so that its request
// may be made again.
var errDiscarded = errors.New("the response was discarded")

// attach gives a client the response of an earlier request with the same
// idempotency key, once it is known to be one.
func (h *Handler) attach(w http.ResponseWriter, r *http.Request, response *fanout.Response, body []byte) error {
	c, err := h.newFollower(w, r, response, 0)
	if err != nil {
		return errDiscarded // or expired between two looks, which is the same here
	}
	defer response.Leave()
	defer h.watchClient(c)()
	defer h.joinResponse(c, response).Leave()
	defer readers.add(c)()
	c.replaying = true
	var away, admitted <-chan struct{}
	if said := askedOf(body); wantsStream(r, said.stream) {
		c.wantUsage.Store(said.usage)
		away, admitted = c.member.Away(), response.Admitted()
	}
	for {
		select {
		case <-admitted: // until then he may have to make the call himself
			c.watch.EnableHeartbeat()
			admitted = nil
		case <-c.cursor.Changed():
			c.describe(response.Header())
			return c.follow(r, h.pace)
		case <-response.Discarded():
			if c.seal() {
				return c.giveUp()
			}
			return errDiscarded
		case <-away:
			return c.sendAway()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// upstreamCall is what a detached producer is started with.
type upstreamCall struct {
	upstream
	response *fanout.Response
	body     []byte
}

// drop takes a call back that is not made.
func (call upstreamCall) drop(cause error) {
	call.response.Discard(notMade(cause))
	call.cancel(cause)
}

// hold takes what a running response needs, whatever becomes of the
// configuration: a place, and the state in which it is found. The caller must
// release both. A call that is cancelled waits no longer.
func (h *Handler) hold(r *http.Request, call upstreamCall) (release func(), err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(call.ctx, cancel)()
	leave, err := h.admission.enter(ctx, repl)
	switch {
	case err != nil && errors.Is(context.Cause(call.ctx), fanout.ErrCancelled):
		return nil, errCancelledEarly
	case err != nil:
		return nil, err
	}
	if _, err := acquireShared(); err != nil {
		leave()
		return nil, err
	}
	return func() {
		leave()
		_ = releaseShared()
	}, nil
}

// begin produces a response in a goroutine of its own, and lets the client who
// has asked for it be the first to follow.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, call upstreamCall) error {
	response := call.response
	c, err := h.newFollower(w, r, response, 0)
	if err != nil {
		call.drop(err)
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	defer response.Leave() // he reads it while he waits, too: its grace must not begin
	release, err := h.hold(r, call)
	if err != nil {
		call.drop(err)
		return refuseWith(w, r, response.Dialect, err)
	}
	response.Admit()
	defer h.watchClient(c)()
	defer h.joinResponse(c, response).Leave()
	defer readers.add(c)()
	hand := newHandover(c, nil)
	p := h.newProducer(call.upstream, r, w, response.Dialect, response, hand)
	own := p.header.Clone()
	p.watch = h.newWatch(call.cancel, nil)
	said := askedOf(call.body)
	h.observe(p, c, r, response.Channel, func(cause error) {
		response.End(cancelled)
		response.Cancel(cause)
	})
	p.record.requested.Store(&said.model)
	defer func() {
		p.record.clientBytes.Store(c.sent.Load())
		p.record.trace(r.Context())
	}()
	c.wantUsage.Store(said.usage)
	if wantsStream(r, said.stream) {
		response.Publish() // as early as can be: other devices wait for it
		p.awaitStream()
		c.watch.EnableHeartbeat()
		c.asked = true
	}
	up, forget := detach(call.ctx, r, p, call.body)
	hand.describe = func(status int, header http.Header) {
		forget()
		response.Describe(addedFields(header, own), "", "")
		response.Publish()
		c.expect(status, header)
		c.watch.EnableHeartbeat()
	}
	h.app.shared.running.Go(func() {
		defer release()
		defer p.watch.StopAndWait()
		end := p.produce(next, up)
		if end.err != nil && hand.isGone() {
			p.handler.logger.Warn("upstream call failed when its client had left",
				zap.String("response_id", p.id), zap.Error(end.err))
		}
		p.report("")
		if p.phase != finished {
			response.Discard(p.discardedFor(end))
		}
		response.Cancel(nil) // a kept response has no use for its call any more
		hand.outcome <- end
	})
	return c.attend(r, hand, h.pace)
}

// produce runs a producer that is not in its client's goroutine. Whatever
// happens, who reads the log comes to an end.
func (p *producer) produce(next caddyhttp.Handler, up *http.Request) (end outcome) {
	defer p.cancel(nil)
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		p.handler.logger.Error("panic while a response was produced", zap.Any("panic", v), zap.Stack("stack"))
		if p.phase == reading {
			p.end(&event.Event{Kind: event.Failed, Err: &event.Error{
				Code: event.CodeUpstreamError, Status: http.StatusInternalServerError, Message: "internal error",
			}})
		}
		end = outcome{aborted: true}
	}()
	return p.settle(p.run(next, up))
}

// attend serves the client of a new response: it lends its goroutine to a
// producer whose response goes through as it is, and follows one whose
// response is a stream.
func (c *client) attend(r *http.Request, hand *handover, p pace) error {
	defer close(hand.gone)
	var away <-chan struct{}
	if c.asked { // else nobody knows whether there will be a stream to come back to
		away = c.member.Away()
	}
	changed := c.cursor.Changed()
	for {
		select {
		case call := <-hand.calls:
			call(c.w)
			if c.passes {
				away, changed = nil, nil // there is nothing to come back to, nor to be told in a frame
			}
		case end := <-hand.outcome:
			if c.passes || c.cursor.Lag() == 0 {
				return c.conclude(end)
			}
			return c.follow(r, p)
		case <-changed:
			return c.follow(r, p)
		case <-away:
			return c.sendAway()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}
