package llmstream

import (
	"context"
	"maps"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/emit"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// serveAttached lets the next handlers produce a response for one client, in
// the goroutine of its request: the client's leaving cancels the upstream, and
// a client that takes no more holds the upstream back.
func (h *Handler) serveAttached(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, dialect string) error {
	stream := fanout.NewStream(fanout.NewID(), 0)
	c, err := h.newClient(w, r, stream.ID(), dialect)
	if err != nil {
		return err
	}
	if c.cursor, err = stream.Open(0); err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	p := &producer{
		handler: h, path: originalPath(r), dialect: dialect, log: stream, out: attached{c, stream},
		ctx: ctx, cancel: cancel, header: w.Header().Clone(),
	}
	end := p.settle(p.run(next, upstreamRequest(ctx, r)))
	if p.err != nil {
		end.aborted = true
	}
	return c.conclude(end)
}

// serveTied is like serveAttached for a client whose pace must not hold the
// upstream back: the producer has a goroutine of its own, which ends with the
// client's request. The log keeps what the client may lag, and no more.
func (h *Handler) serveTied(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, dialect string) error {
	stream := fanout.NewStream(fanout.NewID(), 0)
	stream.Window(h.Buffer)
	c, err := h.newClient(w, r, stream.ID(), dialect)
	if err != nil {
		return err
	}
	if c.cursor, err = stream.Open(0); err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	hand := newHandover(c.expect)
	ctx, cancel := context.WithCancelCause(r.Context())
	p := &producer{
		handler: h, path: originalPath(r), dialect: dialect, log: stream, out: hand,
		ctx: ctx, cancel: cancel, header: w.Header().Clone(),
	}
	up := upstreamRequest(ctx, r)
	var producing sync.WaitGroup
	producing.Go(func() { hand.outcome <- p.produce(next, up) })
	defer producing.Wait()
	defer cancel(errClientGone)
	return c.attend(r, hand, h.pace)
}

// newClient returns a client of a response, who has no place in its log yet.
func (h *Handler) newClient(w http.ResponseWriter, r *http.Request, id, dialect string) (*client, error) {
	c := &client{id: id, dialect: dialect, w: w, rc: http.NewResponseController(w), writeTimeout: h.writeTimeout}
	if dialect != emit.DialectPassthrough {
		var err error
		if c.encoder, err = emit.New(dialect, emit.Options{ResponseID: id}); err != nil {
			return nil, caddyhttp.Error(http.StatusInternalServerError, err)
		}
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// a backend may answer before it has read the whole prompt
		_ = c.rc.EnableFullDuplex()
	}
	return c, nil
}

// conclude ends a client's request after its response: with a status where it
// has failed before anything was sent, with an aborted connection where the
// client must not take the end for a good one, and with the error of the next
// handlers for Caddy's error routes.
func (c *client) conclude(end outcome) error {
	if c.failure != nil {
		c.refuse()
		return nil
	}
	if end.aborted {
		panic(http.ErrAbortHandler)
	}
	c.adopt(end.header)
	return end.err
}

// upstreamRequest is the request as the next handlers see it. A stream that
// comes uncompressed needs no decoding.
func upstreamRequest(ctx context.Context, r *http.Request) *http.Request {
	up := r.WithContext(ctx)
	up.Header = maps.Clone(r.Header)
	up.Header["Accept-Encoding"] = []string{"identity"}
	return up
}
