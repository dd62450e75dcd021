package fanout

import (
	"cmp"
	"container/list"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// ErrAbandoned is the cause with which the upstream of a response is cancelled
// that nobody has read for its grace time.
var ErrAbandoned = errors.New("fanout: nobody reads the response")

// ErrCancelled is the cause with which the upstream of a response is cancelled
// on request.
var ErrCancelled = errors.New("fanout: response cancelled")

// Response is a response that can be found by its id: its log, and what a
// Registry does with it. It is safe for concurrent use.
type Response struct {
	*Stream
	Spec // Cancel is guarded by registry.mu; see the method of that name

	// Started is when the response began.
	Started time.Time

	registry  *Registry
	discarded chan struct{}
	admitted  chan struct{}
	published chan struct{}
	ending    sync.Once // calls Ending and puts the terminal event into the log

	// guarded by registry.mu

	channel  *channel // nil before it is announced, and where it has none
	readers  int
	overdue  bool         // its time is over, but somebody reads
	lonely   bool         // its call was cancelled because nobody read it
	why      *event.Event // the terminal event with which it was discarded
	timer    *time.Timer  // runs out grace, keep, or the memory of an expired one
	stage    stage
	position *list.Element // in registry.ended
	size     int
	header   http.Header // of the upstream's response
	model    string
	format   string
}

// stage is where a response is in its life.
type stage uint8

const (
	running stage = iota
	kept          // it has ended and can be read
	expired       // only its id is remembered
	removed       // unknown
)

// Describe records what is known of a response beside its output; what is
// empty stays as it was.
func (r *Response) Describe(header http.Header, format, model string) {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if header != nil {
		r.header = header
	}
	r.format = cmp.Or(format, r.format)
	r.model = cmp.Or(model, r.model)
}

// Header returns the header fields of the upstream's response, which must not
// be changed; nil where they are not known.
func (r *Response) Header() http.Header {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.header
}

// Format returns the wire format of the upstream, empty while unknown.
func (r *Response) Format() string {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.format
}

// Model returns the model that produces the response, empty while unknown.
func (r *Response) Model() string {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.model
}

// Append adds output events, as Stream.Append does, and makes room where all
// the logs together have become too large.
func (r *Response) Append(events []event.Event) error {
	if err := r.Stream.Append(events); err != nil {
		return err
	}
	r.registry.grew(r)
	return nil
}

// End adds the terminal event, as Stream.End does. From now on the response is
// kept for its time.
func (r *Response) End(terminal *event.Event) bool {
	first := false
	r.ending.Do(func() { // whoever comes second finds the event in the log, too
		if r.Ending != nil {
			r.Ending(terminal)
		}
		first = r.Stream.End(terminal)
	})
	if !first {
		return false
	}
	r.compact()
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r.Ending = nil // a kept response has no use for what it holds
	if r.stage != running {
		return true
	}
	if (terminal.Kind == event.Failed || r.lonely) && r.outputs() == 0 {
		reg.freeCall(r) // the same request may be tried again
	}
	reg.keep(r, terminal)
	return true
}

// Cancel ends the upstream call and lets go of it: only the first call has an
// effect. Who makes the upstream call calls it at the end too, with nil, so
// that a kept response does not hold the request that it was the answer to.
func (r *Response) Cancel(cause error) {
	r.registry.mu.Lock()
	cancel := r.Spec.Cancel
	r.Spec.Cancel = nil
	r.registry.mu.Unlock()
	if cancel != nil {
		cancel(cause) // without the lock: nobody knows what it does
	}
}

// Publish tells that the response is a stream, or will be one, and announces it
// on its channel, once.
func (r *Response) Publish() {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	select {
	case <-r.published:
	default:
		close(r.published)
	}
	if r.Channel != "" && r.channel == nil && r.stage == running {
		reg.join(r)
	}
}

// Published returns a channel that is closed when the response is known to be a
// stream.
func (r *Response) Published() <-chan struct{} { return r.published }

// Admit tells that the call of the response is made, and no longer waits.
func (r *Response) Admit() { close(r.admitted) }

// Admitted returns a channel that is closed when the call is made.
func (r *Response) Admitted() <-chan struct{} { return r.admitted }

// Discard takes back a response that turned out to be none: its id is unknown,
// its request may be made again, and a channel where it was announced hears
// that it has failed. Its log does not end by that: who waits for it learns it
// from Discarded, and from Why the terminal event that he may be told.
func (r *Response) Discard(why *event.Event) {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r.isDiscarded() {
		return
	}
	r.why = why
	close(r.discarded)
	reg.unlist(r)
	switch {
	case r.channel == nil:
		reg.remove(r)
	case r.stage == running:
		reg.keep(r, why)
	}
}

// Why returns the terminal event with which the response was discarded.
func (r *Response) Why() *event.Event {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.why
}

// Discarded returns a channel that is closed when the response is discarded.
// Who was given it for a call of his own may make the call again.
func (r *Response) Discarded() <-chan struct{} { return r.discarded }

func (r *Response) isDiscarded() bool {
	select {
	case <-r.discarded:
		return true
	default:
		return false
	}
}

// Follow opens a cursor after the event index, for a reader who must Leave.
// The errors are those of Stream.Open, ErrExpired and ErrUnknown.
func (r *Response) Follow(index int) (*Cursor, error) {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if err := r.readable(); err != nil {
		return nil, err
	}
	return r.attach(index)
}

// readable tells whether new readers may come. The caller holds registry.mu,
// as with all that follows but Leave and Readers.
func (r *Response) readable() error {
	switch {
	case r.stage == removed || r.isDiscarded():
		return ErrUnknown
	case r.stage == expired || r.overdue:
		return ErrExpired
	}
	return nil
}

// attach opens the cursor of one more reader.
func (r *Response) attach(index int) (*Cursor, error) {
	cursor, err := r.Open(index)
	if err != nil {
		return nil, err
	}
	r.readers++ // a grace that runs finds it when it is over
	return cursor, nil
}

// Leave tells that a reader is gone. When the last one has left a running
// response, its grace time begins.
func (r *Response) Leave() {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	r.left()
}

// left is Leave for who holds registry.mu.
func (r *Response) left() {
	r.readers--
	switch {
	case r.readers > 0:
	case r.stage == running:
		r.rearm(r.Grace)
	case r.overdue:
		r.registry.forget(r)
	}
}

// Readers returns how many readers the response has.
func (r *Response) Readers() int {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.readers
}

// rearm makes something due after d, instead of what was to be due.
func (r *Response) rearm(d time.Duration) {
	r.disarm()
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		r.registry.mu.Lock()
		abandoned := false
		if r.timer == timer { // else it was disarmed while this waited for the lock
			r.timer = nil
			abandoned = r.due()
			r.lonely = abandoned
		}
		r.registry.mu.Unlock()
		if abandoned {
			r.Cancel(ErrAbandoned)
		}
	})
	r.timer = timer
}

// disarm stops the timer.
func (r *Response) disarm() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// due does what the timer was set for. It reports whether the response is to
// be cancelled because nobody reads it.
func (r *Response) due() (abandoned bool) {
	switch r.stage {
	case running:
		return r.readers == 0
	case kept:
		r.registry.expire(r)
	case expired:
		r.registry.remove(r)
	case removed:
	}
	return false
}
