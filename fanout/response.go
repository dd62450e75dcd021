package fanout

import (
	"cmp"
	"container/list"
	"errors"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// ErrAbandoned is the cause with which the upstream of a response is cancelled
// that has had no readers for its grace time.
var ErrAbandoned = errors.New("fanout: the response has no readers")

// ErrCancelled is the cause with which the upstream of a response is cancelled
// on request.
var ErrCancelled = errors.New("fanout: response cancelled")

// Response is a response that can be found by its id: its log, and what a
// Registry does with it. It is safe for concurrent use.
type Response struct {
	Stream
	// Spec is as it was given to Begin, but for long names, Started and what is
	// called.
	Spec

	registry  *Registry
	discarded chan struct{}
	admitted  chan struct{}
	published chan struct{}

	// guarded by registry.mu

	element            *list.Element // in registry.running, or in registry.ended
	keyBefore, keyNext *Response     // of the same idempotency key
	spared             bool          // it was passed over once when it was its turn to be evicted

	// guarded by registry.mu for writing: either lock is enough to read

	stage stage

	// guarded by mu, that of the log

	cancel  func(cause error)
	told    *event.Event // the terminal event that was announced
	why     *event.Event // the terminal event with which it was discarded
	readers int
	overdue bool // its keep time is over, but it has readers
	lonely  bool // its call was cancelled because it had no readers
	timer   *time.Timer
	turn    int // counts the settings of timer
	counted bool
	beside  int // bytes that it holds beside its log
	held    int // bytes that are accounted for
	header  map[string][]string
	model   string
	format  string

	channel *channel  // nil before it is announced, and where it has none
	in      announced // guarded by channel.mu
}

// stage is where a response is in its life.
type stage uint8

const (
	running stage = iota
	kept          // it has ended and can be read
	gone          // its log was forgotten
)

// Describe records what is known of a response beside its output. It can be
// called as often as something becomes known: what is empty stays as it was.
func (r *Response) Describe(header map[string][]string, format, model string) {
	r.mu.Lock()
	r.beside -= r.describedLocked()
	if header != nil && r.stage != gone {
		r.header = header
	}
	r.format = cmp.Or(format, r.format)
	r.model = cmp.Or(model, r.model)
	r.beside += r.describedLocked()
	grown := r.accountLocked()
	r.mu.Unlock()
	if grown {
		r.registry.relieve()
	}
}

// Header returns the header fields of the upstream's response, which must not
// be changed; nil where they are not known.
func (r *Response) Header() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header
}

// Format returns the wire format of the upstream, empty while unknown.
func (r *Response) Format() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.format
}

// Model returns the model that produces the response, empty while unknown.
func (r *Response) Model() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model
}

// Append adds output events, as Stream.Append does. Where everything together
// becomes too large by it, other responses make room. The error is ErrTooLarge
// where the events do not fit into the log, and where the response had to make
// room itself: then it has ended.
func (r *Response) Append(events []event.Event) error {
	r.mu.Lock()
	err := r.appendLocked(events)
	grown := false
	if r.channel != nil && err == nil && r.end == nil {
		grown = r.channel.say(r, r.log.head())
	}
	grown = r.accountLocked() || grown
	terminal := r.end
	r.mu.Unlock()
	if grown {
		r.registry.relieve()
		_, terminal = r.Head()
	}
	if terminal == tooLarge { // it had to make room, now or before
		return ErrTooLarge
	}
	return err
}

// End adds the terminal event, as Stream.End does. From now on the response is
// kept for its time.
func (r *Response) End(terminal *event.Event) bool {
	r.mu.Lock()
	if !r.endOnceLocked(terminal) {
		r.mu.Unlock()
		return false
	}
	r.log.compact()
	r.beside += terminalBytes(terminal)
	r.tellLocked(terminal)
	r.accountLocked()
	r.mu.Unlock()
	reg := r.registry
	reg.mu.Lock()
	r.mu.Lock()
	if r.stage == running { // else it was discarded meanwhile
		if (terminal.Kind == event.Failed || r.lonely) && r.log.head() == 0 {
			reg.calls.free(r) // the same request may be tried again
		}
		reg.keepLocked(r)
	}
	r.mu.Unlock()
	reg.mu.Unlock()
	reg.relieve()
	return true
}

// endOnceLocked puts the terminal event into the log, once. mu must be held.
func (r *Response) endOnceLocked(terminal *event.Event) bool {
	if r.end != nil {
		return false
	}
	if r.Ending != nil {
		r.Ending(terminal)
	}
	r.Ending, r.Followed = nil, nil // a kept response has no use for what they hold
	return r.endLocked(terminal)
}

// Cancel ends the upstream call and lets go of it: only the first call has an
// effect. The producer calls it at the end too, with nil, so that a kept
// response does not hold the request that it was the answer to.
func (r *Response) Cancel(cause error) {
	r.mu.Lock()
	cancel := r.cancel
	r.cancel = nil
	r.mu.Unlock()
	if cancel != nil {
		cancel(cause) // without the lock, since it may end the response
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
// its request may be made again, and a channel where it was announced is told
// that it has failed. Its log does not end by that: readers learn it from
// Discarded, and from Why the terminal event that a client may be told.
func (r *Response) Discard(why *event.Event) {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDiscarded() {
		return
	}
	r.why = why
	close(r.discarded)
	reg.unlistLocked(r)
	switch {
	case r.channel == nil:
		reg.removeLocked(r)
	case r.stage == running:
		r.tellLocked(why)
		reg.keepLocked(r)
	}
}

// Why returns the terminal event with which the response was discarded.
func (r *Response) Why() *event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// Discarded returns a channel that is closed when the response is discarded. A
// request that was given it as the answer to its own call may make the call
// again.
func (r *Response) Discarded() <-chan struct{} { return r.discarded }

func (r *Response) isDiscarded() bool {
	select {
	case <-r.discarded:
		return true
	default:
		return false
	}
}

// Follow opens a cursor after the event index, for a reader that must Leave.
// The errors are those of Stream.Open, ErrExpired and ErrUnknown.
func (r *Response) Follow(index int) (*Cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readableLocked(); err != nil {
		return nil, err
	}
	cursor, err := r.openLocked(index)
	if err != nil {
		return nil, err
	}
	r.readers++ // a grace that runs finds it when it is over
	return cursor, nil
}

// readableLocked tells whether new readers may come. mu must be held.
func (r *Response) readableLocked() error {
	switch {
	case r.isDiscarded():
		return ErrUnknown
	case r.stage == gone || r.overdue:
		return ErrExpired
	}
	return nil
}

// Leave tells that a reader is gone. When the last one has left a running
// response, its grace time begins.
func (r *Response) Leave() {
	r.mu.Lock()
	r.readers--
	over := r.leftLocked()
	r.mu.Unlock()
	if over {
		r.registry.settle(r)
	}
}

// leftLocked is what happens when a reader has left, of the response or of its
// channel: where it was the last one, the grace of a running response begins.
// It reports whether the response may be over by that. mu must be held.
func (r *Response) leftLocked() (over bool) {
	if r.readersLocked() > 0 {
		return false
	}
	if r.stage == running {
		r.rearmLocked(r.Grace)
	}
	return r.overdue
}

// Readers returns how many readers the response has, those of the frames of its
// channel included.
func (r *Response) Readers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readersLocked()
}

func (r *Response) readersLocked() int {
	if r.channel == nil || r.stage != running {
		return r.readers
	}
	return r.readers + r.channel.readers()
}

// rearmLocked makes something due after d, instead of what was to be due. mu
// must be held.
func (r *Response) rearmLocked(d time.Duration) {
	r.disarmLocked()
	turn := r.turn
	r.timer = time.AfterFunc(d, func() { r.due(turn) })
}

// disarmLocked stops the timer. mu must be held.
func (r *Response) disarmLocked() {
	r.turn++ // so that one which has fired, and waits for the lock, does nothing
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// due does what the timer was set for, unless it was set anew meanwhile: a
// running response without readers is cancelled, and a kept one expires.
func (r *Response) due(turn int) {
	if r.isFollowed(turn) {
		return
	}
	r.mu.Lock()
	if r.turn != turn {
		r.mu.Unlock()
		return
	}
	r.timer = nil
	stage := r.stage
	r.lonely = r.isLonelyLocked()
	lonely := r.lonely
	r.mu.Unlock()
	switch {
	case lonely:
		r.Cancel(ErrAbandoned)
	case stage == kept:
		r.registry.expire(r, turn)
	}
}

// isLonelyLocked reports whether the response runs and has no readers. mu must be
// held.
func (r *Response) isLonelyLocked() bool {
	return r.stage == running && r.end == nil && r.readersLocked() == 0
}

// isFollowed reports whether the response, whose grace is over, is read where the
// Registry does not see it. Then the grace begins again.
func (r *Response) isFollowed(turn int) bool {
	r.mu.Lock()
	followed := r.Followed
	asks := followed != nil && r.turn == turn && r.isLonelyLocked()
	r.mu.Unlock()
	if !asks || !followed() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn == turn {
		r.rearmLocked(r.Grace)
	}
	return true
}
