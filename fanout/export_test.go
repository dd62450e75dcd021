package fanout

import (
	"container/list"
	"hash/maphash"
	"time"
	"unsafe"
)

// What the estimates of memory must be.
const (
	RunSize       = runSize
	RealRunSize   = int(unsafe.Sizeof(run{}))
	MarkSize      = markSize
	RealMarkSize  = int(unsafe.Sizeof(mark{}))
	BlockSize     = blockSize
	RealBlockSize = int(unsafe.Sizeof(block{}))
	WindowText    = windowText
	RecycleLimit  = recycleLimit
	MaxPosition   = maxPosition
	MaxName       = maxName
	MaxJournal    = maxJournal
	BlockLen      = blockLen
	TombstoneSize = tombstoneSize
)

// TooLarge is the terminal event of a response that had to make room.
var TooLarge = tooLarge

// Tombstones returns n tombstones.
func Tombstones(n int) any {
	t := &tombstones{seed: maphash.MakeSeed(), known: make(map[uint64]struct{})}
	for range n {
		t.add(tombstone{id: t.hash(NewID(), Access{}), until: time.Hour})
	}
	return t
}

// Bounded is a name as it is held.
func Bounded(name string) string { return bounded(name) }

// Holdings is what a Registry holds.
type Holdings struct {
	Responses, Running, Kept, Calls, Keys, Channels, Idle, Tombstones, Timers int
	Total, Active                                                             int // bytes
}

// Holdings counts what is in the maps of the registry, and the timers of it.
func (reg *Registry) Holdings() Holdings {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	h := Holdings{
		Responses: len(reg.responses), Running: reg.running.Len(), Kept: reg.ended.Len(),
		Calls: len(reg.calls.made), Keys: len(reg.calls.keys), Channels: len(reg.channels), Idle: reg.idle.Len(),
		Tombstones: len(reg.tombs.queue), Total: int(reg.total.Load()), Active: int(reg.active.Load()),
	}
	for _, responses := range []*list.List{&reg.running, &reg.ended} {
		for e := responses.Front(); e != nil; e = e.Next() {
			if e.Value.(*Response).armed() {
				h.Timers++
			}
		}
	}
	for _, ch := range reg.channels {
		if ch.due != nil {
			h.Timers++
		}
	}
	if len(reg.tombs.known) != len(reg.tombs.queue) {
		panic("tombstones that nothing forgets")
	}
	return h
}

// Accounted sums up what the registry holds, without reservations.
func (reg *Registry) Accounted() (total, active int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for e := reg.running.Front(); e != nil; e = e.Next() {
		active += e.Value.(*Response).size()
	}
	for e := reg.ended.Front(); e != nil; e = e.Next() {
		total += e.Value.(*Response).size()
	}
	for _, ch := range reg.channels {
		ch.mu.Lock()
		total += channelSize + len(ch.name.Scope) + len(ch.name.Owner) + len(ch.name.name)
		total += ch.journal.size() + len(ch.listed)*announcedSize
		ch.mu.Unlock()
	}
	return total + active + len(reg.tombs.queue)*tombstoneSize, active
}

// size is what the response holds at this moment.
func (r *Response) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := responseSize + r.AttachmentSize + len(r.id) + r.names() + r.describedLocked() + r.log.size()
	if r.end != nil && r.end != tooLarge {
		n += terminalBytes(r.end)
	}
	return n
}

// Held is what is accounted for.
func (r *Response) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Epoch is the name of the registry in positions.
func (reg *Registry) Epoch() string { return reg.epoch }

// ParsePosition parses a position and returns what it says; joined is -1 where
// it says nothing of that.
func (reg *Registry) ParsePosition(s string) (at uint64, joined int, err error) {
	p, err := reg.parsePosition(s)
	return p.at, p.joined, err
}

// Clock is the position at which a channel begins now.
func (reg *Registry) Clock() uint64 { return reg.clock() }

// Held returns how many events the log has, and how many bytes of text.
func (s *Stream) Held() (events, text int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.table.count, len(s.log.text)
}

// Armed reports whether the response has a timer.
func (r *Response) Armed() bool { return r.armed() }

func (r *Response) armed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.timer != nil
}

// ComeAndGo lets a reader come and leave without letting go of the lock, after
// wait has returned.
func (r *Response) ComeAndGo(wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait()
	r.readers++
	r.readers--
	r.leftLocked()
}

// Armed reports whether the channel has a timer.
func (s *Subscription) Armed() bool {
	s.channel.registry.mu.Lock()
	defer s.channel.registry.mu.Unlock()
	return s.channel.due != nil
}

// Head is the position of the last event of the channel.
func (s *Subscription) Head() uint64 {
	s.channel.mu.Lock()
	defer s.channel.mu.Unlock()
	return s.channel.journal.head
}

// JournalSize is the memory of the order of the channel, in bytes.
func (s *Subscription) JournalSize() int {
	s.channel.mu.Lock()
	defer s.channel.mu.Unlock()
	return s.channel.journal.size()
}

// SubscribeLate lets a reader come to a channel for notices, after wait has
// returned with the lock held.
func (reg *Registry) SubscribeLate(name string, as Access, wait func()) *Subscription {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	wait()
	s := &Subscription{channel: reg.channelLocked(nameOf(as, name))}
	if err := s.begin(position{}, true); err != nil {
		panic(err)
	}
	return s
}

// WithLocksOf runs f while the locks of the registry, of a response and of its
// channel are held.
func (reg *Registry) WithLocksOf(r *Response, f func()) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.channel.mu.Lock()
	defer r.channel.mu.Unlock()
	f()
}
