package store

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Sink is the local log that a Follower fills. Its methods are called one at a
// time, and must not block. Either End or Lost is the last one.
type Sink interface {
	// Append adds output events, each once and in order. They are valid during
	// the call. An error ends the following, without Lost.
	Append(events []event.Event) error
	// End adds the terminal event.
	End(terminal *event.Event)
	// Lost tells that the response cannot be followed any further: ErrUnknown
	// where it was discarded, ErrExpired, ErrCorrupt or ErrClosed.
	Lost(err error)
}

// maxHeld is how many messages a Follower keeps while it reads what came before
// them. It reads again what is beyond that.
const maxHeld = 64

// Follower copies the log of a response of another replica into a Sink. It
// subscribes first and reads then, so that nothing falls between; what comes
// twice is known by its index, and where something is missing it reads again.
type Follower struct {
	replica *Replica
	id      string
	as      fanout.Access
	owner   string // the replica that produces the response
	sink    Sink
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows, and is held while the Sink is fed
	sub     Subscription
	last    int       // index of the last event that the Sink has
	heard   time.Time // when the last message came
	reading bool
	held    [][]byte // messages that came while reading
	again   bool     // read again: messages may have been lost
	ended   bool
}

// Owner returns the replica that produces the response.
func (f *Follower) Owner() string { return f.owner }

// Close ends the following and waits until the Sink is left alone.
func (f *Follower) Close() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.release()
	f.running.Wait()
}

// release gives back what the following needs.
func (f *Follower) release() {
	f.cancel()
	f.replica.unfollow(f)
	f.mu.Lock()
	sub := f.sub
	f.mu.Unlock()
	if sub != nil {
		sub.Close()
	}
}

// lastHeard returns when the last message came.
func (f *Follower) lastHeard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}

// start begins to read, with the subscription if the response goes on.
func (f *Follower) start(sub Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sub = sub
	if f.ended {
		f.running.Go(f.release)
		return
	}
	f.again = true
	f.running.Go(f.catchUp)
}

// deliver takes a message.
func (f *Follower) deliver(m Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !m.Reset {
		f.heard = time.Now()
	}
	switch {
	case f.ended:
	case m.Gone:
		f.lose(ErrUnknown)
	case m.Reset:
		f.read()
	case f.reading && len(f.held) == maxHeld:
		f.again = true
	case f.reading:
		f.held = append(f.held, bytes.Clone(m.Data))
	default:
		if !m.At.IsZero() {
			f.replica.metrics.Lag(time.Since(m.At))
		}
		if !f.take(m.Data) {
			f.read()
		}
	}
}

// take feeds a batch to the Sink, but for what it has. It returns false where
// something is missing before the batch. The caller holds mu.
func (f *Follower) take(data []byte) bool {
	first, events, err := Decode(data)
	switch {
	case err != nil:
		f.lose(err)
		return true
	case first > f.last+1:
		return false
	case first+len(events)-1 <= f.last:
		return true
	}
	events = events[f.last+1-first:]
	f.last += len(events)
	var end *event.Event
	if n := len(events) - 1; events[n].Kind.IsTerminal() {
		events, end = events[:n], &events[n]
	}
	if len(events) > 0 && f.sink.Append(events) != nil {
		f.end(func() {})
		return true
	}
	if end != nil {
		terminal := *end
		f.end(func() { f.sink.End(&terminal) })
	}
	return true
}

// lose ends the following without the terminal event. The caller holds mu.
func (f *Follower) lose(err error) { f.end(func() { f.sink.Lost(err) }) }

// end ends the following. The caller holds mu.
func (f *Follower) end(tell func()) {
	if f.ended {
		return
	}
	f.ended = true
	f.held = nil
	tell()
	f.running.Go(f.release) // not here: the Store that delivers must not be called
}

// read reads what the Sink does not have. The caller holds mu.
func (f *Follower) read() {
	f.again = true
	if !f.reading && !f.ended {
		f.reading = true
		f.running.Go(f.catchUp)
	}
}

// catchUp reads until nothing is missing.
func (f *Follower) catchUp() {
	backoff := firstBackoff
	for f.unread() {
		err := f.readOnce()
		switch {
		case err == nil:
			backoff = firstBackoff
			continue
		case errors.Is(err, ErrExpired), errors.Is(err, ErrClosed), errors.Is(err, ErrCorrupt):
			f.mu.Lock()
			f.lose(err)
			f.mu.Unlock()
			return
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, lastBackoff)
		case <-f.ctx.Done():
			return
		}
	}
}

// unread reports whether something is to be read. If not, the reading ends.
func (f *Follower) unread() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again && !f.ended {
		f.again = false
		return true
	}
	f.reading = false
	return false
}

// readOnce reads from the store what the Sink does not have, and then takes the
// messages that came meanwhile.
func (f *Follower) readOnce() error {
	f.mu.Lock()
	after := f.last
	f.mu.Unlock()
	page, err := f.replica.read(f.ctx, f.id, after)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && !errors.Is(err, ErrUnknown) {
		f.again = true
		return err
	}
	f.takeAll(page.Batches)
	f.takeAll(f.held)
	clear(f.held)
	f.held = f.held[:0]
	switch {
	case f.ended:
		return nil
	case err != nil && f.again:
		return err
	case err != nil:
		return nil // its owner writes it again, or is found dead
	case f.last == after && f.last < page.Last:
		return ErrCorrupt // there is more, and it is not there
	case f.last < page.Last:
		f.again = true
	case page.Status != fanout.InProgress:
		return ErrCorrupt // it has ended without an end
	}
	return nil
}

// takeAll takes batches in order. The caller holds mu.
func (f *Follower) takeAll(batches [][]byte) {
	for _, data := range batches {
		if f.ended {
			return
		}
		if !f.take(data) {
			f.again = true
			return
		}
	}
}

// bury ends the response, whose owner is dead, for all who follow it.
func (f *Follower) bury() {
	meta, err := f.replica.find(f.ctx, f.id, f.as)
	switch {
	case errors.Is(err, ErrUnknown):
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(func() { f.sink.End(event.TerminalInterrupted) })
		return
	case err == nil && meta.Status == fanout.InProgress && meta.Replica == f.owner:
		ref := meta.Ref
		ref.Replica = f.replica.name
		_ = f.replica.interrupt(f.ctx, ref, meta.Last, meta.About.Model) // else with the next beat, unless somebody else has
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read()
}
