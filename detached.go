package llmstream

import (
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
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
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	response, found, err := h.app.shared.registry.Begin(fanout.NewID(), fanout.Spec{
		Access:  as,
		Dialect: dialect,
		Call:    h.Resume.call(r, as, body),
		Channel: repl.ReplaceAll(h.Resume.Channel, ""),
		Keep:    time.Duration(h.Resume.Keep),
		Grace:   time.Duration(h.Resume.Grace),
		MaxSize: int(h.Resume.MaxSize),
		Cancel:  cancel,
	})
	if err != nil || found {
		cancel(nil)
	}
	switch {
	case err != nil:
		return refuseWith(w, r, dialect, refusal(err))
	case found:
		return h.follow(w, r, response, 0)
	}
	leave, err := h.admission.enter(r.Context(), repl)
	if err != nil {
		// who has attached to it meanwhile must not wait for ever
		response.End(rejected(err))
		response.Discard()
		cancel(err)
		return refuseWith(w, r, dialect, err)
	}
	return h.begin(w, r, next, upstreamCall{upstream{ctx, cancel}, response, body, leave})
}

// upstreamCall is what a detached producer is started with.
type upstreamCall struct {
	upstream
	response *fanout.Response
	body     []byte
	leave    func() // gives the place back
}

// begin produces a response in a goroutine of its own, and lets the client who
// has asked for it be the first to follow.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, call upstreamCall) error {
	response := call.response
	c, err := h.newFollower(w, r, response, 0)
	if err != nil {
		call.leave()
		response.Discard()
		call.cancel(err)
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	defer response.Leave()
	defer h.watchClient(c)()
	defer h.joinResponse(c, response).Leave()
	hand := newHandover(c, func(status int, header http.Header) {
		response.Describe(header, "", "")
		response.Publish()
		c.expect(status, header)
		c.watch.EnableHeartbeat()
	})
	p := h.newProducer(call.upstream, r, w, response.Dialect, response, hand)
	p.watch = h.newWatch(call.cancel, nil)
	if wantsStream(r, wishOf(call.body)) {
		response.Publish() // as early as can be: other devices wait for it
		p.awaitStream()
		c.watch.EnableHeartbeat()
		c.asked = true
	}
	up := detach(call.ctx, r, p, call.body)
	h.app.shared.running.Go(func() {
		defer call.leave()
		defer p.watch.StopAndWait()
		end := p.produce(next, up)
		if p.phase != finished {
			response.Discard()
		}
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
			p.end(&provider.Event{Kind: provider.Failed, Err: &provider.Error{
				Code: provider.CodeUpstreamError, Status: http.StatusInternalServerError, Message: "internal error",
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
	for {
		select {
		case call := <-hand.calls:
			call(c.w)
		case end := <-hand.outcome:
			if c.cursor.Lag() == 0 {
				return c.conclude(end)
			}
			return c.follow(r, p)
		case <-c.cursor.Changed():
			return c.follow(r, p)
		case <-away:
			return c.sendAway()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}
