package fanout

import (
	"strconv"
	"strings"
)

// position is a place in a channel as a reader brings it back: all notices up
// to seq, and some events of the responses that were running then.
type position struct {
	seq     uint64
	indexes map[string]int
}

// maxPosition bounds the id that a reader of a channel brings back, in bytes.
const maxPosition = 64 << 10

// Position returns an id of where the reader is: from it Subscribe goes on. It
// is "<registry>.<notice>", and ".<response id>-<index>" for each response
// that is followed; empty where the reader is nowhere yet.
func (s *Subscription) Position() string {
	if !s.placed() {
		return ""
	}
	s.skipForeign()
	var b strings.Builder
	b.WriteString(s.channel.registry.epoch)
	b.WriteByte('.')
	b.WriteString(strconv.FormatUint(s.seq, 10))
	for _, f := range s.open {
		b.WriteByte('.')
		b.WriteString(f.response.id)
		b.WriteByte('-')
		b.WriteString(strconv.Itoa(f.cursor.Index()))
	}
	return b.String()
}

// skipForeign moves a reader who has had all notices of the channel behind
// those of other channels, so that its position does not grow old.
func (s *Subscription) skipForeign() {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if s.err() == nil && len(s.news()) == 0 {
		s.seq = reg.seq
	}
}

// parsePosition reads an id that Position gave. The errors are ErrBadCursor,
// and ErrExpired for an id of another registry: that of a process which is no
// more.
func (reg *Registry) parsePosition(s string) (position, error) {
	if len(s) > maxPosition {
		return position{}, ErrBadCursor
	}
	parts := strings.Split(s, ".")
	if len(parts) < 2 || !IsID(parts[0]) {
		return position{}, ErrBadCursor
	}
	seq, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != parts[1] {
		return position{}, ErrBadCursor
	}
	at := position{seq: seq, indexes: make(map[string]int)}
	for _, part := range parts[2:] {
		id, index, err := parsePlace(part, "-")
		if _, twice := at.indexes[id]; err != nil || twice {
			return position{}, ErrBadCursor
		}
		at.indexes[id] = index
	}
	if parts[0] != reg.epoch {
		return position{}, ErrExpired
	}
	if seq > reg.seq {
		return position{}, ErrBadCursor
	}
	return at, nil
}
