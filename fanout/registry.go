package fanout

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

var (
	// ErrUnknown is the error for a response that does not exist, or not for
	// the one who asks.
	ErrUnknown = errors.New("fanout: unknown response")
	// ErrExpired is the error for a response that is no longer kept.
	ErrExpired = errors.New("fanout: response no longer kept")
	// ErrMismatch is the error for an idempotency key that was used with
	// another body.
	ErrMismatch = errors.New("fanout: idempotency key used with another body")
)

// Registry finds responses by id, by idempotency key and by channel, from
// their beginning until they expire. It is safe for concurrent use. Who holds
// mu may take the lock of a Stream, never the other way round.
type Registry struct {
	memory int // bound of all logs together; 0 is none

	mu        sync.Mutex
	responses map[string]*Response
	calls     map[Call]*Response // by a Call without Body
	channels  map[channelName]*channel
	ended     list.List // of *Response, kept ones, the oldest end first
	total     int       // size of all logs
	seq       uint64    // of the last notice on any channel
	lost      uint64    // the last notice of the channels that are no more
	epoch     string    // names this registry in the ids of channels' frames

	destructed bool
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		responses: make(map[string]*Response),
		calls:     make(map[Call]*Response),
		channels:  make(map[channelName]*channel),
		epoch:     NewID(),
	}
}

// Limit bounds the memory of all logs together, in bytes: beyond it the
// responses that ended first expire. 0 is no bound.
func (reg *Registry) Limit(bytes int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.memory = bytes
	reg.evict()
}

// Begin starts a response and returns it. Where a response of the same call is
// running or kept, it returns that one, and found is true. A new response has
// no readers, but its grace begins only when one has left. The error is
// ErrMismatch.
func (reg *Registry) Begin(id string, spec Spec) (r *Response, found bool, err error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	call := spec.Call
	call.Body = ""
	if call.Key != "" {
		if r := reg.calls[call]; r != nil {
			if r.Call.Body != spec.Call.Body {
				return nil, false, ErrMismatch
			}
			return r, true, nil
		}
	}
	r = &Response{
		Stream: NewStream(id, spec.MaxSize), Spec: spec, Started: time.Now(),
		registry: reg, discarded: make(chan struct{}), admitted: make(chan struct{}), published: make(chan struct{}),
	}
	reg.responses[id] = r
	if call.Key != "" {
		reg.calls[call] = r
	}
	return r, false, nil
}

// Find returns the response with an id. The errors are ErrUnknown and
// ErrExpired.
func (reg *Registry) Find(id string, as Access) (*Response, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r := reg.responses[id]
	if r == nil || !r.admits(as) {
		return nil, ErrUnknown
	}
	if err := r.readable(); err != nil {
		return nil, err
	}
	return r, nil
}

// FindKey returns the responses of an idempotency key, running and kept.
func (reg *Registry) FindKey(key string) []*Response {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	var found []*Response
	for _, r := range reg.responses {
		if r.stage <= kept && r.Call.Key == key && key != "" {
			found = append(found, r)
		}
	}
	return found
}

// Len returns how many responses are running, and how many are kept.
func (reg *Registry) Len() (active, done int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, r := range reg.responses {
		if r.stage == running {
			active++
		}
	}
	return active, reg.ended.Len()
}

// Destruct forgets everything. What runs goes on for its readers and is
// abandoned without, but nobody finds it, and nothing of it is kept. It
// implements caddy.Destructor.
func (reg *Registry) Destruct() error {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for e := reg.ended.Front(); e != nil; e = reg.ended.Front() {
		reg.remove(e.Value.(*Response))
	}
	for _, r := range reg.responses {
		if r.stage == running {
			reg.unlist(r)
		} else {
			reg.remove(r)
		}
	}
	for _, ch := range reg.channels {
		ch.disarm()
	}
	clear(reg.channels)
	reg.destructed = true
	return nil
}

// keep lets the time begin for which a response that has ended can be read.
// The caller holds mu, as with all that follows.
func (reg *Registry) keep(r *Response, terminal *event.Event) {
	r.stage = kept
	r.position = reg.ended.PushBack(r)
	reg.announce(r, terminal)
	if reg.destructed {
		reg.remove(r)
		return
	}
	r.rearm(r.Keep)
	reg.account(r)
}

// expire ends the time of a kept response: new readers are too late, and its
// log goes when those who read it now have left.
func (reg *Registry) expire(r *Response) {
	if r.readers == 0 {
		reg.forget(r)
		return
	}
	r.overdue = true
	reg.freeCall(r)
}

// forget drops the log of a kept response, and remembers its id for as long
// again, where that is known.
func (reg *Registry) forget(r *Response) {
	if reg.responses[r.id] != r {
		r.drop()
		reg.remove(r)
		return
	}
	reg.release(r)
	r.stage = expired
	r.overdue = false
	r.header = nil
	r.drop()
	r.rearm(r.Keep)
}

// remove forgets a response.
func (reg *Registry) remove(r *Response) {
	reg.release(r)
	r.stage = removed
	r.disarm()
	reg.unlist(r)
}

// release takes a response out of all but the list of ids.
func (reg *Registry) release(r *Response) {
	if r.stage == kept {
		reg.ended.Remove(r.position)
	}
	reg.freeCall(r)
	reg.leaveChannel(r)
	reg.total -= r.size
	r.size = 0
}

// unlist makes a response unknown: its id and its call.
func (reg *Registry) unlist(r *Response) {
	reg.freeCall(r)
	if reg.responses[r.id] == r {
		delete(reg.responses, r.id)
	}
}

// freeCall makes it possible to make the request of a response again.
func (reg *Registry) freeCall(r *Response) {
	call := r.Call
	call.Body = ""
	if reg.calls[call] == r {
		delete(reg.calls, call)
	}
}

// grew wakes who follows the channel of a running response, and accounts for
// its growth.
func (reg *Registry) grew(r *Response) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r.channel != nil {
		r.channel.changed.wake()
	}
	if reg.memory > 0 {
		reg.account(r)
	}
}

// account updates the size of a response and makes room where there is too
// little.
func (reg *Registry) account(r *Response) {
	if r.stage >= expired {
		return
	}
	size := r.Size()
	reg.total += size - r.size
	r.size = size
	reg.evict()
}

// evict lets the responses that ended first expire until the rest fits. Who
// still reads one of them finds that it is gone.
func (reg *Registry) evict() {
	for reg.memory > 0 && reg.total > reg.memory {
		oldest := reg.ended.Front()
		if oldest == nil {
			return
		}
		reg.forget(oldest.Value.(*Response))
	}
}
