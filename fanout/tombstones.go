package fanout

import (
	"container/heap"
	"hash/maphash"
	"time"
)

// tombstone is what is left of a response that is no longer kept: an id, as a
// hash together with the access it needs, and when it is forgotten too. A
// response that is asked for in time is expired, and not unknown.
type tombstone struct {
	id    uint64
	until time.Duration // since the registry began
}

// tombstoneSize is the memory of a tombstone with what finds it, in bytes.
const tombstoneSize = 64

// tombstones are all of them. They are guarded by Registry.mu.
type tombstones struct {
	seed  maphash.Seed
	known map[uint64]struct{}
	queue tombstoneQueue
	timer *time.Timer // set for the first of the queue
}

// hash returns the id of the tombstone of a response.
func (t *tombstones) hash(id string, as Access) uint64 {
	return maphash.Comparable(t.seed, struct {
		Access
		id string
	}{as, id})
}

// has reports whether a response is remembered that may be known with an
// access.
func (t *tombstones) has(id string, as Access) bool {
	_, owned := t.known[t.hash(id, as)]
	_, open := t.known[t.hash(id, Access{Scope: as.Scope})]
	return owned || open
}

func (t *tombstones) add(s tombstone) {
	t.known[s.id] = struct{}{}
	heap.Push(&t.queue, s)
}

// pop forgets the one that would be forgotten first.
func (t *tombstones) pop() {
	s := heap.Pop(&t.queue).(tombstone)
	delete(t.known, s.id)
}

// clear forgets all of them, and the timer.
func (t *tombstones) clear() {
	if t.timer != nil {
		t.timer.Stop()
	}
	*t = tombstones{seed: t.seed, known: make(map[uint64]struct{})}
}

// buryLocked remembers the id of a response for as long again as it was kept.
// Where there are too many, those that would be forgotten first go.
func (reg *Registry) buryLocked(r *Response) {
	t := &reg.tombs
	t.add(tombstone{t.hash(r.id, r.Access), time.Since(reg.began) + r.Keep})
	reg.total.Add(tombstoneSize)
	if limit := reg.limit.Load(); limit > 0 {
		for int64(len(t.queue)*tombstoneSize) > limit/tombstoneShare {
			reg.popTombstoneLocked()
		}
	}
	reg.watchTombsLocked()
}

// tombstoneShare is which part of the limit tombstones may take.
const tombstoneShare = 16

func (reg *Registry) popTombstoneLocked() {
	reg.tombs.pop()
	reg.total.Add(-tombstoneSize)
}

// watchTombsLocked sets the timer for the next tombstone.
func (reg *Registry) watchTombsLocked() {
	t := &reg.tombs
	if len(t.queue) == 0 {
		return
	}
	d := t.queue[0].until - time.Since(reg.began)
	if t.timer != nil {
		t.timer.Reset(d)
		return
	}
	t.timer = time.AfterFunc(d, func() {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		for now := time.Since(reg.began); len(t.queue) > 0 && t.queue[0].until <= now; {
			reg.popTombstoneLocked()
		}
		reg.watchTombsLocked()
	})
}

// tombstoneQueue is a heap, by the time at which they are forgotten.
type tombstoneQueue []tombstone

func (q tombstoneQueue) Len() int           { return len(q) }
func (q tombstoneQueue) Less(i, j int) bool { return q[i].until < q[j].until }
func (q tombstoneQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *tombstoneQueue) Push(x any) { *q = append(*q, x.(tombstone)) }

// Pop implements heap.Interface.
func (q *tombstoneQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	*q = (*q)[:last]
	return s
}
