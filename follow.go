package llmstream

import (
	"bufio"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// resumeResponse goes on with the response that an event id names.
func (h *Handler) resumeResponse(w http.ResponseWriter, r *http.Request, as fanout.Access, eventID string) error {
	id, index, err := fanout.ParseEventID(eventID)
	if err != nil {
		h.resumeResult(err)
		return refuseWith(w, r, emit.DialectText, refusal(err))
	}
	response, err := h.app.shared.registry.Find(id, as)
	if err != nil {
		h.resumeResult(err)
		return refuseWith(w, r, emit.DialectText, refusal(err))
	}
	return h.follow(w, r, response, index)
}

// follow gives a client a response from after the event index on. Where it has
// ended and the client has had everything, the answer is 204, which makes an
// EventSource stop.
func (h *Handler) follow(w http.ResponseWriter, r *http.Request, response *fanout.Response, index int) error {
	c, err := h.newFollower(w, r, response, index)
	if err != nil {
		h.resumeResult(err)
		return refuseWith(w, r, response.Dialect, refusal(err))
	}
	defer response.Leave()
	logFollowed(r, response, c)
	if c.cursor.Ended() {
		h.resumeResult(errAtEnd)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	h.resumeResult(nil)
	defer h.watchClient(c)()
	defer h.joinResponse(c, response).Leave()
	defer readers.add(c)()
	c.watch.EnableHeartbeat()
	c.replaying = true
	if err := c.open(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return c.follow(r, h.pace)
}

// newFollower returns a reader of a response, who must Leave it.
func (h *Handler) newFollower(w http.ResponseWriter, r *http.Request, response *fanout.Response, index int) (*client, error) {
	cursor, err := response.Follow(index)
	if err != nil {
		return nil, err
	}
	c := h.newClient(w, r, response.ID(), response.Dialect)
	c.cursor, c.model, c.gone, c.why = cursor, response.Model, response.Discarded(), response.Why
	c.describe(response.Header())
	return c, nil
}

// follow writes the log to the client until one of them ends.
func (c *client) follow(r *http.Request, p pace) error {
	for {
		if err := c.catchUp(p); err != nil {
			panic(http.ErrAbortHandler)
		}
		select {
		case c.took <- struct{}{}:
		default:
		}
		if c.ended || c.left || c.failure != nil {
			return c.conclude(outcome{})
		}
		select {
		case <-c.cursor.Changed():
		case <-c.gone:
			return c.giveUp()
		case <-c.member.Away():
			return c.sendAway()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// pace is what is done about a client who takes less than the model produces.
type pace struct {
	policy string
	events int // how many events a client may lag
	// resumable says that one who is disconnected can come back.
	resumable bool
}

// The values of slow_client.
const (
	slowBlock      = "block"
	slowCoalesce   = "coalesce"
	slowDrop       = "drop"
	slowDisconnect = "disconnect"
)

// maxLag is how many bytes of text a client may lag, or one event.
const maxLag = 256 << 10

// patience is how long a write may take before it is the connection that holds
// the client up. One that lags for another reason (a backend says much at once,
// this machine is busy) loses nothing by it.
const patience = 50 * time.Millisecond

// lags reports whether a client who has once had everything lags too far.
func (p pace) lags(batch *fanout.Batch) bool {
	return batch.Behind > p.events || (batch.BehindBytes > maxLag && batch.Behind > 1)
}

// policyOf returns the policy for a client of a dialect. One that has no frame
// to tell of a gap must not have any.
func (p pace) policyOf(dialect string) string {
	switch {
	case p.policy != slowDrop || dialect == emit.DialectText:
		return p.policy
	case p.resumable:
		return slowCoalesce
	default:
		return slowDisconnect
	}
}

// catchUp writes what the client has not had yet, or does with a slow client
// what is to be done.
func (c *client) catchUp(p pace) error {
	p.policy = p.policyOf(c.dialect)
	batch := c.cursor.Read()
	lags := !c.replaying && p.lags(&batch)
	lost := batch.Skipped > 0
	switch {
	case batch.Len() == 0 && !lost:
		return nil
	case p.policy == slowDrop && (lost || lags && c.held):
		return c.skip(&batch)
	case p.policy == slowDisconnect && (lost || lags && c.held):
		return c.disconnect(p)
	case lost:
		return fanout.ErrForgotten // never a silent gap
	}
	merge := lags && p.policy == slowCoalesce
	if merge {
		c.metrics.slowClients.WithLabelValues("coalesced").Inc()
	}
	err := c.sendTimed(p, &batch, c.replaying || merge)
	c.replaying = c.replaying && c.cursor.Lag() > p.events
	return err
}

// sendTimed is send, and notes whether the connection has held it up, where
// that decides what becomes of a client who lags.
func (c *client) sendTimed(p pace, batch *fanout.Batch, merge bool) error {
	if p.policy != slowDrop && p.policy != slowDisconnect {
		return c.send(batch, merge)
	}
	begin := time.Now()
	err := c.send(batch, merge)
	c.held = time.Since(begin) > patience
	return err
}

// skip leaves out what the client has missed, says so, and goes on at the head
// of the log.
func (c *client) skip(batch *fanout.Batch) error {
	dropped := batch.Skip()
	c.metrics.slowClients.WithLabelValues("dropped").Inc()
	return c.write(func(bw *bufio.Writer) bool {
		c.commit()
		if dropped > 0 {
			c.cursor.Advance(c.cursor.Index() + dropped)
			if text, ok := c.encoder.(*emit.Text); ok {
				text.Gap(bw, c.cursor.Index(), dropped)
			}
		}
		return c.encode(bw, batch, false)
	})
}

// disconnect sends a slow client away, with a reconnect frame where he can
// come back.
func (c *client) disconnect(p pace) error {
	c.dismiss()
	if !p.resumable || !c.reconnect(reasonSlowClient) {
		return errSlowClient
	}
	return c.err
}

// dismiss notes that the client is sent away because it is slow.
func (c *client) dismiss() {
	if !c.dismissed.Swap(true) {
		c.metrics.slowClients.WithLabelValues("disconnected").Inc()
	}
}

// giveUp ends a client whose response turned out to be none.
func (c *client) giveUp() error {
	err := c.write(func(bw *bufio.Writer) bool {
		c.commit()
		c.event, c.ended = *c.why(), true
		c.aborts = emit.Aborts(c.encoder, &c.event)
		c.encoder.Encode(bw, c.cursor.Index()+1, &c.event)
		return true
	})
	return c.conclude(outcome{aborted: err != nil})
}

// sendAway tells the client to come back, at a reload and at exit.
func (c *client) sendAway() error {
	if !c.reconnect(string(c.drain.Reason())) || c.err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// reconnect tells the client to come back, where its dialect can.
func (c *client) reconnect(reason string) bool {
	if c.dialect != emit.DialectText {
		return false
	}
	c.metrics.reconnects.WithLabelValues(reason).Inc()
	_ = c.write(func(bw *bufio.Writer) bool {
		c.left = true
		c.commit()
		if text, ok := c.encoder.(*emit.Text); ok {
			text.Reconnect(bw, c.cursor.Index(), c.drain.Retry(), reason)
		}
		return true
	})
	return true
}

// errSlowClient ends the connection of a client who takes too little.
var errSlowClient = errors.New("the client takes too little")

// The reasons of a reconnect frame.
const reasonSlowClient = "slow_client"
