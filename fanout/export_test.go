package fanout

import "unsafe"

// What the estimates of a log's memory must be.
const (
	RunSize      = runSize
	RealRunSize  = int(unsafe.Sizeof(run{}))
	MarkSize     = markSize
	RealMarkSize = int(unsafe.Sizeof(mark{}))
	WindowText   = windowText
	RecycleLimit = recycleLimit
	MaxPosition  = maxPosition
)

// Holdings is what a Registry holds.
type Holdings struct {
	Responses, Kept, Calls, Channels, Timers int
	Total                                    int // bytes of all logs
}

// Holdings counts what is in the maps of the registry, and the timers of it.
func (reg *Registry) Holdings() Holdings {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	h := Holdings{
		Responses: len(reg.responses), Calls: len(reg.calls), Channels: len(reg.channels),
		Total: reg.total,
	}
	for _, r := range reg.responses {
		if r.timer != nil && r.stage != kept {
			h.Timers++
		}
	}
	for e := reg.ended.Front(); e != nil; e = e.Next() {
		h.Kept++
		if e.Value.(*Response).timer != nil {
			h.Timers++
		}
	}
	for _, ch := range reg.channels {
		if ch.timer != nil {
			h.Timers++
		}
	}
	return h
}

// Epoch is the name of the registry in positions.
func (reg *Registry) Epoch() string { return reg.epoch }

// ParsePosition parses a position and returns what it says.
func (reg *Registry) ParsePosition(s string) (seq uint64, indexes map[string]int, err error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	at, err := reg.parsePosition(s)
	return at.seq, at.indexes, err
}

// Advance gives the registry n notices that no channel has.
func (reg *Registry) Advance(n uint64) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.seq += n
}

// Held returns how many events the log has, and how many bytes of text.
func (s *Stream) Held() (events, text int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.table.count, len(s.log.text)
}

// Armed reports whether the response has a timer.
func (r *Response) Armed() bool {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	return r.timer != nil
}

// ComeAndGo lets a reader come and leave without letting go of the lock, after
// wait has returned.
func (r *Response) ComeAndGo(wait func()) error {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	wait()
	if _, err := r.attach(0); err != nil {
		return err
	}
	r.left()
	return nil
}

// Armed reports whether the channel has a timer.
func (s *Subscription) Armed() bool {
	s.channel.registry.mu.Lock()
	defer s.channel.registry.mu.Unlock()
	return s.channel.timer != nil
}

// SubscribeLate lets a reader come to a channel for notices, after wait has
// returned with the lock held.
func (reg *Registry) SubscribeLate(name string, as Access, wait func()) *Subscription {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	wait()
	s := &Subscription{channel: reg.channelOf(channelName{as, name}), seq: reg.seq}
	s.channel.followers++
	return s
}
