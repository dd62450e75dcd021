package llmstream

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// serveAttached lets the next handlers produce a response for one client, in
// the goroutine of its request: the client's leaving cancels the upstream, and
// a client that takes no more holds the upstream back.
func (h *Handler) serveAttached(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, dialect string) error {
	stream := fanout.NewStream(fanout.NewID(), 0)
	cursor, err := stream.Open(0)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	c := h.newClient(w, r, stream.ID(), dialect)
	c.cursor = cursor
	ctx, cancel := withCancelCause(r.Context())
	defer cancel(nil)
	defer h.join(c, drain.Never, func() { cancel(errDraining) }).Leave()
	defer readers.add(c)()
	p := h.newProducer(upstream{ctx, cancel}, r, w, dialect, stream, attached{c, stream})
	p.watch = h.newWatch(cancel, c)
	c.model = p.model
	defer p.watch.StopAndWait()
	h.observe(p, c, r, "", cancel)
	defer p.conclude(c, r)
	end := p.settle(p.run(next, h.upstreamRequest(ctx, r, c, p.awaitStream)))
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
	cursor, err := stream.Open(0)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	c := h.newClient(w, r, stream.ID(), dialect)
	c.cursor = cursor
	defer h.watchClient(c)()
	hand := newHandover(c, c.expect)
	ctx, cancel := withCancelCause(r.Context())
	defer h.join(c, drain.Never, func() { cancel(errDraining) }).Leave()
	defer readers.add(c)()
	c.took = make(chan struct{}, 1)
	p := h.newProducer(upstream{ctx, cancel}, r, w, dialect, stream, &tied{handover: hand, stream: stream, pace: h.pace, cut: cutOff(w)})
	p.watch = h.newWatch(cancel, nil)
	c.model = p.model
	defer p.watch.StopAndWait()
	h.observe(p, c, r, "", cancel)
	defer p.conclude(c, r)
	up := h.upstreamRequest(ctx, r, c, func() {
		p.awaitStream()
		c.watch.EnableHeartbeat()
	})
	var producing sync.WaitGroup
	producing.Go(func() { hand.outcome <- p.produce(next, up) })
	defer producing.Wait()
	defer cancel(errClientGone)
	return c.attend(r, hand, h.pace)
}

// upstream is the context of an upstream call, and its end.
type upstream struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (h *Handler) newProducer(up upstream, r *http.Request, w http.ResponseWriter, dialect string, log eventLog, out outlet) *producer {
	return &producer{
		handler: h, id: log.ID(), path: originalPath(r), dialect: dialect, log: log, out: out,
		ctx: up.ctx, cancel: up.cancel, header: w.Header().Clone(),
	}
}

// observe begins the record of the producer's response.
func (h *Handler) observe(p *producer, c *client, r *http.Request, channel string, cancel func(error)) {
	p.record = newRecord(h.app.metrics, p.id, p.dialect, channel, cancel)
	c.record = p.record
	attachRecord(r, p.record)
}

// conclude ends the record of a response that is bound to its client.
func (p *producer) conclude(c *client, r *http.Request) {
	p.record.clientBytes.Store(c.sent.Load())
	fate := c.fate(r, p.ctx)
	if p.phase == passing || p.phase == mirroring && p.terminal != nil && p.err == nil {
		fate = "" // it is no stream, or he has had all of it
	}
	p.report(fate)
	p.record.trace(r.Context())
}

// newWatch returns the watch of a producer. It beats for the client where that
// one has no watch of its own.
func (h *Handler) newWatch(cancel context.CancelCauseFunc, c *client) *timeouts.Watch {
	limits := h.limits
	var beat func()
	if c != nil && c.dialect != emit.DialectPlain {
		limits.Heartbeat, beat = h.heartbeat, c.beat
	}
	return timeouts.New(limits, func(e *timeouts.TimeoutError) { cancel(e) }, beat)
}

// watchClient gives a client a watch that beats, and returns what stops it.
func (h *Handler) watchClient(c *client) (stop func()) {
	limits := timeouts.Limits{Heartbeat: h.heartbeat}
	if c.dialect == emit.DialectPlain {
		limits.Heartbeat = 0
	}
	c.watch = timeouts.New(limits, nil, c.beat)
	return c.watch.StopAndWait
}

// awaitStream tells that the request asks for a stream: the model has to
// answer in time, and the client may be sent heartbeats.
func (p *producer) awaitStream() {
	p.watch.Begin()
	if p.dialect != emit.DialectPassthrough {
		p.watch.EnableHeartbeat()
	}
}

// newClient returns a client of a response, who has no place in its log yet.
func (h *Handler) newClient(w http.ResponseWriter, r *http.Request, id, dialect string) *client {
	c := &client{id: id, dialect: dialect, w: w, rc: http.NewResponseController(w), drain: h.drain, metrics: h.app.metrics}
	c.limitWrites(r, h.writeTimeout)
	c.multiplexed = r.ProtoMajor > 1
	return c
}

// farewell is how long an aborted stream on HTTP/2 or HTTP/3 stays open after
// its last frame: clients forget what they have not read when it is reset.
const farewell = 20 * time.Millisecond

// conclude ends a client's request after its response: with a status where it
// has failed before anything was sent, with an aborted connection where the
// client must not take the end for a good one, and with the error of the next
// handlers for Caddy's error routes.
func (c *client) conclude(end outcome) error {
	if c.failure != nil {
		c.refuse()
		return nil
	}
	if end.aborted || c.aborts {
		if c.multiplexed {
			time.Sleep(farewell)
		}
		panic(http.ErrAbortHandler)
	}
	c.adopt(end.header)
	return end.err
}

// upstreamRequest is the request as the next handlers see it. A stream that
// comes uncompressed needs no decoding. asked is called once, when it is known
// that the request asks for a stream.
func (h *Handler) upstreamRequest(ctx context.Context, r *http.Request, c *client, asks func()) *http.Request {
	up := r.WithContext(ctx)
	up.Header = maps.Clone(r.Header)
	up.Header["Accept-Encoding"] = []string{"identity"}
	if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		c.upload = &upload{ReadCloser: r.Body}
		r.Body = c.upload
	}
	early := wantsStream(r, unsaid) && !provider.StreamsUnlessTold(originalPath(r))
	if early {
		asks()
	}
	if r.Body != nil && r.Body != http.NoBody {
		up.Body = &scannedBody{ReadCloser: r.Body, left: maxScan, found: func(said asked) {
			c.wantUsage.Store(said.usage)
			if c.record != nil {
				c.record.requested.Store(&said.model)
			}
			if !early && wantsStream(r, said.stream) {
				asks()
			}
		}}
	}
	return up
}
