package fanout

import (
	"container/list"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// ErrAbandoned is the cause with which the upstream of a response is cancelled
// that nobody has read for its grace time.
var ErrAbandoned = errors.New("fanout: nobody reads the response")

// ErrCancelled is the cause with which the upstream of a response is cancelled
// on request.
var ErrCancelled = errors.New("fanout: response cancelled")

// Status is how far a response is.
type Status string

// The states of a response, as clients see them.
const (
	InProgress  Status = "in_progress"
	Completed   Status = "done"
	Cancelled   Status = "cancelled"
	Broken      Status = "failed"
	Interrupted Status = "interrupted"
)

// StatusOf returns the status that a terminal event stands for; nil stands for
// a response that is running.
func StatusOf(terminal *provider.Event) Status {
	switch {
	case terminal == nil:
		return InProgress
	case terminal.Kind == provider.Done && terminal.Result.Finish == provider.FinishCancelled:
		return Cancelled
	case terminal.Kind == provider.Done:
		return Completed
	case terminal.Err.Code == provider.CodeInterrupted:
		return Interrupted
	default:
		return Broken
	}
}

// Access is who may find a response.
type Access struct {
	// Scope is the name space of ids, keys and channels.
	Scope string
	// Owner is whom a response belongs to; empty where knowing its id is
	// enough.
	Owner string
}

// admits reports whether what belongs to a may be found by somebody with the
// access of other.
func (a Access) admits(other Access) bool {
	return a.Scope == other.Scope && (a.Owner == "" || a.Owner == other.Owner)
}

// Spec is what a Registry must know of a response to keep it.
type Spec struct {
	Access
	// Dialect is what the producing route emits.
	Dialect string
	// Call identifies the request, so that the same one is made once only: its
	// idempotency key with all that must agree. Zero where it has none.
	Call Call
	// Channel is where the response is announced; empty for nowhere.
	Channel string
	// Keep is how long the response can be read after its end.
	Keep time.Duration
	// Grace is how long it goes on while nobody reads it.
	Grace time.Duration
	// MaxSize bounds its log, in bytes; 0 is no bound.
	MaxSize int
	// Cancel ends the upstream call.
	Cancel func(cause error)
}

// Response is a response that can be found by its id: its log, and what a
// Registry does with it. It is safe for concurrent use.
type Response struct {
	*Stream
	Spec

	// Started is when the response began.
	Started time.Time

	registry *Registry
	channel  *Channel // nil before it is announced, and where it has none

	// guarded by registry.mu

	readers  int
	overdue  bool        // its time is over, but somebody reads
	timer    *time.Timer // runs out grace, keep, or the memory of an expired one
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

// Describe records what is known of a response beside its output.
func (r *Response) Describe(header http.Header, format, model string) {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if header != nil {
		r.header = header
	}
	r.format, r.model = format, model
}

// Header returns the header fields of the upstream's response, which must not
// be changed; nil where they are not known.
func (r *Response) Header() http.Header {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.header
}

// Model returns the model that produces the response, empty while unknown.
func (r *Response) Model() string {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.model
}

// Append adds output events, as Stream.Append does, and makes room where all
// the logs together have become too large.
func (r *Response) Append(events []provider.Event) error {
	if err := r.Stream.Append(events); err != nil {
		return err
	}
	r.registry.grew(r)
	return nil
}

// End adds the terminal event, as Stream.End does. From now on the response is
// kept for its time.
func (r *Response) End(terminal *provider.Event) bool {
	if !r.Stream.End(terminal) {
		return false
	}
	r.compact()
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r.stage != running {
		return true
	}
	r.stage = kept
	r.position = reg.ended.PushBack(r)
	if terminal.Kind == provider.Failed && r.outputs() == 0 {
		reg.freeCall(r) // the same request may be tried again
	}
	reg.announce(r, terminal)
	r.rearm(r.Keep, (*Registry).expire)
	reg.account(r)
	return true
}

// Publish announces the response on its channel, once.
func (r *Response) Publish() {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r.Channel != "" && r.channel == nil && r.stage == running {
		reg.join(r)
	}
}

// Discard removes a response that turned out to be none: its id is unknown,
// and its request may be made again.
func (r *Response) Discard() {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.remove(r)
}

// Follow opens a cursor after the event index, for a reader who must Leave.
// The errors are those of Stream.Open, and ErrExpired.
func (r *Response) Follow(index int) (*Cursor, error) {
	reg := r.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r.stage >= expired {
		return nil, ErrExpired
	}
	cursor, err := r.Open(index)
	if err != nil {
		return nil, err
	}
	r.readers++
	if r.stage == running {
		r.disarm()
	}
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
		r.rearm(r.Grace, (*Registry).abandon)
	case r.overdue:
		r.registry.expire(r)
	}
}

// Readers returns how many readers the response has.
func (r *Response) Readers() int {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.readers
}

// rearm lets then be called after d, instead of what was to be called. The
// caller holds registry.mu.
func (r *Response) rearm(d time.Duration, then func(*Registry, *Response)) {
	r.disarm()
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		r.registry.mu.Lock()
		defer r.registry.mu.Unlock()
		if r.timer == timer { // else it was disarmed while this waited for the lock
			then(r.registry, r)
		}
	})
	r.timer = timer
}

// disarm stops the timer. The caller holds registry.mu.
func (r *Response) disarm() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}
