package fanout

import (
	"container/list"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// What things take in memory, in bytes, as it was measured: structures, what
// finds them, and what the runtime needs for them.
const (
	responseSize = 1250 // a response, but for its names, its log and what is known of it
	terminalSize = 400  // a terminal event, but for its words
	fieldSize    = 96   // a header field, but for its name and values
	stringSize   = 16   // a value of it, but for its bytes
)

// tooLarge ends a response that has to make room for others.
var tooLarge = &event.Event{Kind: event.Failed, Err: &event.Error{
	Code: event.CodeResponseTooLarge, Status: 502,
	Message: "the response was the largest when there was no more memory for responses",
}}

// terminalBytes is the memory of a terminal event.
func terminalBytes(terminal *event.Event) int {
	n := terminalSize
	if err := terminal.Err; err != nil {
		n += len(err.Message) + len(err.Upstream)
	}
	if result := terminal.Result; result != nil {
		n += len(result.ProviderFinish)
		for i := range result.Choices {
			n += 32 + len(result.Choices[i].Finish)
		}
	}
	return n
}

// describedLocked is the memory of what Describe has recorded.
func (r *Response) describedLocked() int {
	n := len(r.format) + len(r.model)
	for name, values := range r.header {
		n += fieldSize + len(name)
		for _, value := range values {
			n += stringSize + len(value)
		}
	}
	return n
}

// accountLocked accounts for what the response has come to hold. It reports
// whether it has grown. mu must be held.
func (r *Response) accountLocked() (grown bool) {
	n := r.beside + r.log.size()
	if n == r.held || !r.counted { // mostly: a log grows seldom, and then by much
		return false
	}
	d := int64(n - r.held)
	r.held = n
	r.registry.total.Add(d)
	if r.stage == running {
		r.registry.active.Add(d)
	}
	return d > 0
}

// discountLocked takes a response out of the account, for good. r.mu must be
// held as well.
func (reg *Registry) discountLocked(r *Response) {
	reg.total.Add(-int64(r.held))
	if r.stage == running {
		reg.active.Add(-int64(r.held))
	}
	r.held, r.counted = 0, false
}

// Limit bounds the memory of all that the registry knows of, in bytes; 0 is no
// bound. Where more is held, kept responses give way, the oldest end first, but
// only until they, with the channels, hold half of the limit. Where that is not enough, the largest
// running response ends with the code response_too_large, and its log goes.
func (reg *Registry) Limit(bytes int) {
	reg.limit.Store(int64(bytes))
	reg.relieve()
}

// Reserve takes n bytes of the limit for something that the registry does not
// hold, such as a request body; Release gives them back. Kept responses give
// way to it as to a response that grows, but no running one does: the error is
// ErrFull where there is no room, and then nothing is taken. The last eighth of
// the limit is for the growth of responses that run.
func (reg *Registry) Reserve(n int) error {
	if reg.take(n) {
		return nil
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.reserveLocked(n) {
		return nil
	}
	return ErrFull
}

// Release gives back what was reserved.
func (reg *Registry) Release(n int) {
	reg.active.Add(-int64(n))
	reg.total.Add(-int64(n))
}

// take is Reserve where there is room.
func (reg *Registry) take(n int) bool {
	for {
		total, limit := reg.total.Load(), reg.limit.Load()
		if limit > 0 && total+int64(n) > reservable(limit) {
			return false
		}
		if reg.total.CompareAndSwap(total, total+int64(n)) {
			reg.active.Add(int64(n))
			return true
		}
	}
}

// reservable is how much of a limit may be held where something new comes.
func reservable(limit int64) int64 { return limit - limit/8 }

// reserveLocked is Reserve; mu must be held.
func (reg *Registry) reserveLocked(n int) bool {
	for !reg.take(n) {
		if !reg.evictLocked() {
			return false
		}
	}
	return true
}

// relieve makes room where more is held than may be.
func (reg *Registry) relieve() {
	if !reg.isOver() {
		return
	}
	for more := true; more && reg.isOver(); {
		var cut *Response
		if cut, more = reg.relieveSome(); cut != nil {
			cut.Cancel(ErrTooLarge)
		}
	}
}

// relieveAtOnce is how many things go with the lock held once.
const relieveAtOnce = 256

// relieveSome makes some room and returns the running response that had to go,
// if there was one. It reports whether there is more that can go.
func (reg *Registry) relieveSome() (cut *Response, more bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for range relieveAtOnce {
		if !reg.isOver() {
			return nil, false
		}
		if !reg.evictLocked() {
			cut = reg.cutLargestLocked()
			return cut, cut != nil
		}
	}
	return nil, true
}

func (reg *Registry) isOver() bool {
	limit := reg.limit.Load()
	return limit > 0 && reg.total.Load() > limit
}

// keepsMuch reports whether more than half of the limit is held for what is not
// running: kept responses, and channels and tombstones with them.
func (reg *Registry) keepsMuch() bool {
	return reg.total.Load()-reg.active.Load() > reg.limit.Load()/2
}

// evictLocked lets one thing go that is held for clients that may come back. It
// reports false where there is none that may go. A response that has readers is
// passed over once.
func (reg *Registry) evictLocked() bool {
	if idle := reg.idle.Front(); idle != nil {
		reg.forgetChannelLocked(idle.Value.(*channel))
		return true
	}
	for oldest := reg.ended.Front(); oldest != nil && reg.keepsMuch(); oldest = reg.ended.Front() {
		if reg.evictResponseLocked(oldest) {
			return true
		}
	}
	return false
}

// evictResponseLocked lets a kept response go, and reports whether it did.
func (reg *Registry) evictResponseLocked(e *list.Element) bool {
	r := e.Value.(*Response)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers > 0 && !r.spared {
		r.spared = true
		reg.ended.MoveToBack(e)
		return false
	}
	reg.forgetLocked(r)
	return true
}

// cutLargestLocked ends the largest running response and drops its log. A
// reader that has had all of it is told how it has ended; another, that the rest
// is gone. It returns nil where there is nothing to drop.
func (reg *Registry) cutLargestLocked() *Response {
	for r := reg.largestLocked(); r != nil; r = reg.largestLocked() {
		r.mu.Lock()
		isCut := r.endOnceLocked(tooLarge) // else it has just ended by itself
		if isCut {
			r.cutLocked()
			reg.calls.free(r)
			reg.keepLocked(r)
		}
		r.mu.Unlock()
		if isCut {
			return r
		}
	}
	return nil
}

// cutLocked drops what a response holds that is not needed to tell how it has
// ended. r.mu must be held.
func (r *Response) cutLocked() {
	r.log = history{base: r.log.head()}
	r.beside -= r.describedLocked()
	r.header = nil
	r.beside += r.describedLocked()
	r.tellLocked(tooLarge)
	r.accountLocked()
}

// largestLocked returns the running response that holds most of what can be
// dropped, nil where none holds anything.
func (reg *Registry) largestLocked() (largest *Response) {
	size := 0
	for e := reg.running.Front(); e != nil; e = e.Next() {
		r := e.Value.(*Response)
		r.mu.Lock()
		if n := r.log.size() + r.describedLocked(); r.end == nil && n > size {
			largest, size = r, n
		}
		r.mu.Unlock()
	}
	return largest
}
