package fanout

import (
	"container/list"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrUnknown is the error for a response that does not exist, or may not be
	// found with the access given.
	ErrUnknown = errors.New("fanout: unknown response")
	// ErrExpired is the error for a response that is no longer kept.
	ErrExpired = errors.New("fanout: response no longer kept")
	// ErrMismatch is the error for an idempotency key that was used with
	// another body.
	ErrMismatch = errors.New("fanout: idempotency key used with another body")
	// ErrFull is the error for what does not fit into the limit of a Registry.
	ErrFull = errors.New("fanout: too much is held")
)

// Registry finds responses by id, by idempotency key and by channel, from
// their beginning until they expire. It is safe for concurrent use.
type Registry struct {
	epoch string    // names this registry in the positions of channels
	began time.Time // when the positions of channels begin

	limit  atomic.Int64 // of all that is held, in bytes; 0 is none
	total  atomic.Int64 // all that is held: responses, channels, tombstones, reservations
	active atomic.Int64 // of it, what running responses hold and what is reserved

	mu        sync.Mutex
	responses map[string]*Response // running and kept ones, by id
	calls     callIndex
	channels  map[channelName]*channel
	running   list.List // of *Response, in order of beginning
	ended     list.List // of *Response, kept ones, the oldest end first
	idle      list.List // of *channel, which nothing uses, the longest first
	tombs     tombstones

	// of the channels that were forgotten
	lost    uint64 // the last position that is lost
	reached uint64 // the last position
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		epoch:     NewID(),
		began:     time.Now(),
		responses: make(map[string]*Response),
		calls:     callIndex{made: make(map[Call]*Response), keys: make(map[string]*Response)},
		channels:  make(map[channelName]*channel),
		tombs:     tombstones{seed: maphash.MakeSeed(), known: make(map[uint64]struct{})},
	}
}

// Begin starts a response and returns it. Where a response of the same call is
// running or kept, it returns that one, and found is true. A new response has
// no readers, but its grace begins only when one has left. The errors are
// ErrMismatch, and ErrFull where there is no room for another response.
func (reg *Registry) Begin(id string, spec Spec) (r *Response, found bool, err error) {
	spec = spec.bounded()
	r = &Response{
		Stream: Stream{id: id, limit: spec.MaxSize}, Spec: spec, registry: reg,
		discarded: make(chan struct{}), admitted: make(chan struct{}), published: make(chan struct{}),
		cancel: spec.Cancel, beside: responseSize + spec.AttachmentSize + len(id) + spec.names(),
	}
	r.Spec.Cancel = nil
	if r.Started.IsZero() {
		r.Started = time.Now()
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if earlier := reg.calls.made[spec.Call.identity()]; earlier != nil {
		if earlier.Call.Body != spec.Call.Body {
			return nil, false, ErrMismatch
		}
		return earlier, true, nil
	}
	if !reg.reserveLocked(r.beside) {
		return nil, false, ErrFull
	}
	r.counted, r.held = true, r.beside
	reg.responses[id] = r
	reg.calls.add(r)
	r.element = reg.running.PushBack(r)
	return r, false, nil
}

// Find returns the response with an id. The errors are ErrUnknown and
// ErrExpired.
func (reg *Registry) Find(id string, as Access) (*Response, error) {
	as = as.bounded()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r := reg.responses[id]
	switch {
	case r == nil && reg.tombs.has(id, as):
		return nil, ErrExpired
	case r == nil || !r.admits(as):
		return nil, ErrUnknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readableLocked(); err != nil {
		return nil, err
	}
	return r, nil
}

// FindKey returns the responses of an idempotency key, running and kept, the
// newest first. The key is that of a Call.
func (reg *Registry) FindKey(key string) []*Response {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.calls.of(bounded(key))
}

// Len returns how many responses are running, and how many are kept.
func (reg *Registry) Len() (active, done int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.running.Len(), reg.ended.Len()
}

// Destruct forgets everything. What runs goes on for its readers and is
// abandoned without, but cannot be found, and nothing of it is kept. It
// implements caddy.Destructor.
func (reg *Registry) Destruct() error {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, responses := range []*list.List{&reg.ended, &reg.running} {
		for e := responses.Front(); e != nil; e = responses.Front() {
			r := e.Value.(*Response)
			r.mu.Lock()
			if r.stage == kept {
				reg.removeLocked(r)
			} else { // it is only made impossible to find
				reg.unlistLocked(r)
				reg.discountLocked(r)
				responses.Remove(e)
				r.element = nil
			}
			r.mu.Unlock()
		}
	}
	for _, ch := range reg.channels {
		reg.useLocked(ch)
		ch.discount()
	}
	clear(reg.channels)
	reg.total.Add(-int64(len(reg.tombs.queue) * tombstoneSize))
	reg.tombs.clear()
	return nil
}

// keepLocked lets the time begin for which a response that has ended can be
// read. r.mu must be held as well, as in all that follows.
func (reg *Registry) keepLocked(r *Response) {
	if !r.counted { // the registry was destructed
		reg.removeLocked(r)
		return
	}
	reg.running.Remove(r.element)
	r.stage = kept
	r.element = reg.ended.PushBack(r)
	reg.active.Add(-int64(r.held))
	r.rearmLocked(r.Keep)
}

// forgetLocked drops the log of a response and remembers its id, where that is
// known.
func (reg *Registry) forgetLocked(r *Response) {
	if reg.responses[r.id] == r {
		reg.buryLocked(r)
	}
	reg.removeLocked(r)
	r.header = nil
	r.log = history{base: r.log.head()}
}

// removeLocked takes a response out of everything.
func (reg *Registry) removeLocked(r *Response) {
	reg.unlistLocked(r)
	reg.discountLocked(r)
	switch {
	case r.element == nil:
	case r.stage == running:
		reg.running.Remove(r.element)
	default:
		reg.ended.Remove(r.element)
	}
	r.element = nil
	r.stage = gone
	r.overdue = false
	r.disarmLocked()
	if ch := r.channel; ch != nil {
		r.channel = nil
		ch.leave(r)
		reg.tidyLocked(ch)
	}
}

// unlistLocked makes a response unknown: its id and its call.
func (reg *Registry) unlistLocked(r *Response) {
	reg.calls.remove(r)
	if reg.responses[r.id] == r {
		delete(reg.responses, r.id)
	}
}

// expire ends the time of a kept response: new readers are too late, and its
// log goes when its readers have left. It does nothing where the time was set
// anew meanwhile.
func (reg *Registry) expire(r *Response, turn int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn != turn || r.stage != kept {
		return
	}
	if reg.settleLocked(r); r.stage == kept {
		r.overdue = true
		reg.calls.remove(r)
	}
}

// settle forgets a response whose keep time is over and that has no readers any
// more.
func (reg *Registry) settle(r *Response) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.overdue {
		reg.settleLocked(r)
	}
}

func (reg *Registry) settleLocked(r *Response) {
	if r.readers == 0 && (r.channel == nil || !r.channel.awaits(r)) {
		reg.forgetLocked(r)
	}
}
