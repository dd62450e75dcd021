package relay

import (
	"errors"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
)

// client runs a follower in the goroutine of its client's request.
type client struct {
	*Request
	route    *Route
	follower *deliver.Follower
	member   *drain.Member
	// discarded is closed when the response turns out to be none, and why is
	// the terminal event for that.
	discarded <-chan struct{}
	why       func() *event.Event
	// mustStay reports whether the response is not to be had elsewhere.
	mustStay func() bool
	// caughtUp gets a value when the client has had what there was; nil where
	// that is not waited for.
	caughtUp chan struct{}
	// mayLeave says that the client has something to come back to, though it
	// has not been sent anything yet.
	mayLeave bool
}

// follow writes the log to the client until one of them ends.
func (c *client) follow() error {
	away := c.member.Away()
	for {
		err := c.follower.Step()
		switch {
		case errors.Is(err, fanout.ErrForgotten):
			return c.lose()
		case err != nil:
			panic(http.ErrAbortHandler)
		}
		select {
		case c.caughtUp <- struct{}{}:
		default:
		}
		if c.follower.Over() {
			return c.conclude(ingest.Call{})
		}
		select {
		case <-c.follower.Changed():
		case <-c.discarded:
			return c.giveUp()
		case <-away:
			if !c.stays() {
				return c.sendAway()
			}
			away = nil
		case <-c.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// attend serves the client of a new response: it lends its goroutine to a
// producer whose response passes as it is, and follows one whose response is a
// stream.
func (c *client) attend(hand *handover) error {
	defer close(hand.gone)
	var away <-chan struct{}
	if c.mayLeave { // else it is not known whether there will be a stream to come back to
		away = c.member.Away()
	}
	changed := c.follower.Changed()
	for {
		select {
		case call := <-hand.calls:
			call()
			if c.follower.Passes() {
				away, changed = nil, nil // there is nothing to come back to, nor to be told in a frame
			}
		case call := <-hand.done:
			if c.follower.Passes() || c.follower.Lag() == 0 {
				return c.conclude(call)
			}
			return c.follow()
		case <-changed:
			return c.follow()
		case <-away:
			if !c.stays() {
				return c.sendAway()
			}
			away = nil
		case <-c.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// giveUp ends a client whose response turned out to be none.
func (c *client) giveUp() error {
	err := c.follower.GiveUp(c.why())
	return c.conclude(ingest.Call{Aborted: err != nil})
}

// lose ends a client that has not had what was given up to make room: with an
// error, so that it does not take an empty connection for a fault on the way.
func (c *client) lose() error {
	if !c.follower.Seal() {
		return c.route.Refuse(c.W, c.Request.Request, c.follower.Dialect, &deliver.RefusalError{Answer: event.TerminalTooLarge.Err})
	}
	err := c.follower.GiveUp(event.TerminalTooLarge)
	return c.conclude(ingest.Call{Aborted: err != nil})
}

// stays reports whether the client has nowhere to come back to.
func (c *client) stays() bool { return c.mustStay != nil && c.mustStay() }

// sendAway tells the client to come back, at a reload and at exit.
func (c *client) sendAway() error {
	if !c.follower.Reconnect(event.Reason(c.route.Drain.Reason())) || c.follower.Failed() {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// conclude ends the client's request after its response.
func (c *client) conclude(call ingest.Call) error {
	c.follower.Conclude(c.Request.Request, call.Aborted)
	c.follower.Adopt(call.Header)
	return call.Err
}
