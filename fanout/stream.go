package fanout

import (
	"errors"
	"sync"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

var (
	// ErrTooLarge is the error of an append beyond the limit of a Stream, or to
	// a response that had to make room for others. It is also the cause with
	// which the upstream of such a response is cancelled.
	ErrTooLarge = errors.New("fanout: response too large")
	// ErrForgotten is the error of opening a cursor at a place whose events
	// are no longer kept.
	ErrForgotten = errors.New("fanout: events no longer kept")
)

// Stream is the log of one response: its output events, and at last the one
// terminal event. It is safe for concurrent use.
type Stream struct {
	id    string
	limit int

	mu      sync.Mutex
	log     history
	fresh   int // index of the last event before the newest Append
	window  int // events that are kept; 0: all
	end     *event.Event
	changed signal
}

// NewStream returns an empty log of the response id. Its memory is at most
// about limit bytes; 0 is no limit.
func NewStream(id string, limit int) *Stream {
	return &Stream{id: id, limit: limit}
}

// Window makes the log forget old events, whether its readers have had them or
// not: what an Append finds, it cuts to about the last n events (between n and
// 2n; n is at least 1) and 256 KiB of text (at most twice that), or one event.
// What it adds itself is all kept until the next, so that a reader that was at
// the head misses nothing.
func (s *Stream) Window(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window = n
}

// ID returns the response id.
func (s *Stream) ID() string { return s.id }

// Append adds the output events of one read from upstream and wakes every
// reader once. Their texts are copied. After the end it does nothing. The
// error is ErrTooLarge where the events do not fit; then none is added.
func (s *Stream) Append(events []event.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appendLocked(events)
}

// appendLocked is Append; mu must be held.
func (s *Stream) appendLocked(events []event.Event) error {
	if s.end != nil || len(events) == 0 {
		return nil
	}
	if s.limit > 0 && s.log.used()+sizeOf(events) > s.limit {
		return ErrTooLarge
	}
	if s.window > 0 {
		s.log.trim(s.window)
	}
	s.fresh = s.log.head()
	for i := range events {
		s.log.append(&events[i])
	}
	s.changed.wake()
	return nil
}

// sizeOf is the memory that events will take in a log, in bytes, but for what
// they share with their neighbours.
func sizeOf(events []event.Event) int {
	n := 0
	for i := range events {
		n += 2 + len(events[i].Text) + len(events[i].Tool.ID) + len(events[i].Tool.Name)
	}
	return n
}

// End adds the terminal event, which must not change any more. Only the first
// call has an effect; it returns true.
func (s *Stream) End(terminal *event.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(terminal)
}

// endLocked is End; mu must be held.
func (s *Stream) endLocked(terminal *event.Event) bool {
	if s.end != nil {
		return false
	}
	s.end = terminal
	s.changed.wake()
	return true
}

// Head returns the index of the last event, and the terminal event once the
// response has ended.
func (s *Stream) Head() (index int, terminal *event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headLocked(), s.end
}

func (s *Stream) headLocked() int {
	if s.end != nil {
		return s.log.head() + 1
	}
	return s.log.head()
}

// Size returns the memory that the log holds, in bytes.
func (s *Stream) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.size()
}

// Open returns a cursor that stands after the event index. The error is
// ErrBadCursor for an index beyond the last event, and ErrForgotten for one
// whose next event is no longer kept.
func (s *Stream) Open(index int) (*Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(index)
}

// openLocked is Open; mu must be held.
func (s *Stream) openLocked(index int) (*Cursor, error) {
	switch {
	case index < 0 || index > s.headLocked():
		return nil, ErrBadCursor
	case index < s.log.base:
		return nil, ErrForgotten
	}
	return &Cursor{stream: s, index: index}, nil
}

// Start returns a cursor that stands before the first event, for a log that has
// forgotten none.
func (s *Stream) Start() *Cursor { return &Cursor{stream: s} }

// Recycle forgets all output events and uses their memory for the next ones.
// It is for a log whose one reader has read everything and holds no Batch.
func (s *Stream) Recycle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.recycle()
}

// between returns the events after the index from, up to and including to.
func (s *Stream) between(from, to int) (b Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outputs := min(to, s.log.head())
	kept := min(max(from, s.log.base), outputs)
	s.log.between(&b, max(kept, s.log.base), max(outputs, s.log.base))
	if to > s.log.head() {
		b.end = s.end
	}
	b.Skipped = kept - from
	return b
}
