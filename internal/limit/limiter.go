// Package limit bounds how many generations run at a time, in all and for one
// key, with a bounded queue in front.
//
// The invariant: a request waits only while every place is taken. So no request
// passes the queue, a place that becomes free goes to the head of the queue in
// the same critical section, and a place is never lost, whatever races.
package limit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Config is what a Limiter enforces. Values below zero mean the same as zero.
type Config struct {
	// Max is the number of places: how many requests may hold a Slot at a
	// time. 0 means that there is no limit on the whole.
	Max int
	// Queue is how many requests may wait for a place. 0 means that none
	// waits: a request that finds no place is turned away.
	Queue int
	// Wait is how long one request may wait. 0 means as long as its context
	// lives.
	Wait time.Duration
	// PerKey is how many requests of one key may run or wait. 0 means that
	// keys are not limited.
	PerKey int
}

// Limiter hands out places in the order in which they were asked for. Its
// methods are safe for concurrent use.
//
// Its memory is bounded by the largest number of requests that ran or waited
// at the same time, however many different keys it has seen.
type Limiter struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	config   Config
	active   int
	waiters  list.List      // of *waiter, the head first
	keys     map[string]int // requests that run or wait; no entry at 0
	draining bool
	holding  holdingTime
}

// Slot is a place. Its holder must call Release.
type Slot struct {
	limiter  *Limiter
	key      string
	released bool // guarded by limiter.mu
}

// waiter is a request in the queue.
type waiter struct {
	slot *Slot
	wait time.Duration // the Wait that was in force when it came
	// settled is closed by what takes the waiter off the queue on its
	// behalf: with a place, or with err set.
	settled chan struct{}
	// elem and err are guarded by the limiter's mu until the waiter is off
	// the queue; then elem is nil and neither changes any more.
	elem *list.Element
	err  error
}

// New returns a Limiter with all its places free.
func New(c Config) *Limiter {
	return &Limiter{
		config:  c,
		keys:    make(map[string]int),
		holding: newHoldingTime(time.Now()),
	}
}

// Configure replaces the configuration at once and keeps the counts. A higher
// Max admits requests that wait. With a lower one none is admitted until
// enough places are free. A shorter queue, a shorter Wait and a lower PerKey
// concern only requests that come later.
func (l *Limiter) Configure(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c
	l.admitWaiters()
}

// Acquire takes a place for a request, waiting in the queue where there is
// none. The caller must release the slot.
//
// It fails with ErrDraining, ErrKeyLimit, ErrTooMany or ErrQueueFull at once,
// with ErrDraining or ErrQueueTimeout while it waits, and with
// context.Cause(ctx) when ctx is done, before or meanwhile. The key comes
// before the queue: a request beyond PerKey never waits. The empty key is a
// key like any other.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Slot, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	slot := &Slot{limiter: l, key: key}
	w, err := l.enter(slot)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return slot, nil
	}
	return l.await(ctx, w)
}

// enter admits the request, puts it into the queue or turns it away. It
// returns a waiter only for the queue.
func (l *Limiter) enter(slot *Slot) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.draining:
		return nil, ErrDraining
	case l.config.PerKey > 0 && l.keys[slot.key] >= l.config.PerKey:
		return nil, ErrKeyLimit
	case l.hasPlace():
		// No request is passed: while a place is free, none waits.
		l.keys[slot.key]++
		l.admit()
		return nil, nil
	case l.config.Queue <= 0:
		return nil, ErrTooMany
	case l.waiters.Len() >= l.config.Queue:
		return nil, ErrQueueFull
	}
	l.keys[slot.key]++
	w := &waiter{slot: slot, wait: l.config.Wait, settled: make(chan struct{})}
	w.elem = l.waiters.PushBack(w)
	return w, nil
}

// await blocks until w has a place or leaves the queue without one.
func (l *Limiter) await(ctx context.Context, w *waiter) (*Slot, error) {
	var expired <-chan time.Time
	if w.wait > 0 {
		timer := time.NewTimer(w.wait)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-w.settled:
	case <-expired:
		l.withdraw(w, ErrQueueTimeout)
	case <-ctx.Done():
		l.withdraw(w, context.Cause(ctx))
	}
	// From here on w is off the queue, and what settled it first stands: a
	// place that came just before the timeout is kept, because it is of use.
	if w.err != nil {
		return nil, w.err
	}
	// A place that came together with the end of ctx is of no use any more.
	// This catches both orders: ctx ended, but select or withdraw found the
	// place already there.
	if ctx.Err() != nil {
		w.slot.Release()
		return nil, context.Cause(ctx)
	}
	return w.slot, nil
}

// withdraw takes w off the queue with err, unless something else did.
func (l *Limiter) withdraw(w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.elem == nil {
		return
	}
	// The others need no look: w held no place, and while any request waits there
	// is none free.
	l.remove(w)
	w.err = err
	l.forget(w.slot.key)
}

// Release gives the place back. Calls after the first have no effect.
func (s *Slot) Release() {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	l.holding.ended(time.Now(), l.active)
	l.active--
	l.forget(s.key)
	l.admitWaiters()
}

// Drain turns away every request that waits and every one that comes, with
// ErrDraining. Slots that are held stay so. There is no way back.
func (l *Limiter) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	for l.waiters.Len() > 0 {
		w := l.head()
		l.remove(w)
		w.err = ErrDraining
		l.forget(w.slot.key)
		close(w.settled)
	}
}

// Stats returns how many slots are held and how many requests wait.
func (l *Limiter) Stats() (active, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active, l.waiters.Len()
}

// hasPlace reports whether a request could be admitted. The caller holds mu.
func (l *Limiter) hasPlace() bool {
	return l.config.Max <= 0 || l.active < l.config.Max
}

// admit takes a place. The caller holds mu.
func (l *Limiter) admit() {
	l.holding.advance(time.Now(), l.active)
	l.active++
}

// admitWaiters restores the invariant after places were added or freed. The
// caller holds mu.
func (l *Limiter) admitWaiters() {
	for l.waiters.Len() > 0 && l.hasPlace() {
		w := l.head()
		l.remove(w)
		l.admit()
		close(w.settled)
	}
}

// head returns the request that has waited longest. The caller holds mu and
// knows that there is one.
func (l *Limiter) head() *waiter {
	return l.waiters.Front().Value.(*waiter)
}

// remove takes w off the queue. The caller holds mu.
func (l *Limiter) remove(w *waiter) {
	l.waiters.Remove(w.elem)
	w.elem = nil
}

// forget uncounts one request of a key. The caller holds mu.
func (l *Limiter) forget(key string) {
	if l.keys[key]--; l.keys[key] == 0 {
		delete(l.keys, key)
	}
}
