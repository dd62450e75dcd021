package fanout

import (
	"strconv"
	"strings"
)

// position is a place in a channel as a reader brings it back.
type position struct {
	at uint64 // the last position that the reader has had
	// joined is how much the reader has had of what was running at that
	// position, of which it must have all before it goes on; -1: all.
	joined int
}

// maxPosition bounds the id that a reader of a channel brings back, in bytes.
const maxPosition = IDLen + 2*(1+20)

// Position returns an id of where the reader is: from it Subscribe goes on. It
// is "<epoch>.<position>", or "<epoch>.<position>.<n>" for a reader that joined
// at that position and has had n steps of what was running then. The epoch is
// that of what counts the positions: this registry, or a store that several
// processes share.
func (s *Subscription) Position() string {
	s.keepYoung()
	b := make([]byte, 0, maxPosition)
	b = append(b, s.channel.registry.epoch...)
	b = strconv.AppendUint(append(b, '.'), s.at, 10)
	if s.parts != nil {
		b = strconv.AppendInt(append(b, '.'), int64(s.joined), 10)
	}
	return string(b)
}

// keepYoung moves a reader that has had everything of a silent channel to the
// position of the moment, so that its position does not grow old: when the
// channel is forgotten, only the age of a position tells whether something of
// it was lost.
func (s *Subscription) keepYoung() {
	ch := s.channel
	if s.parts != nil || !ch.silent.Load() {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.journal.empty() && s.at == ch.journal.head {
		ch.journal.head = max(ch.journal.head, ch.registry.clock())
		ch.fresh = ch.journal.head
		s.at = ch.journal.head
	}
}

// parsePosition reads an id that Position gave. The errors are ErrBadCursor,
// and ErrExpired for an id of another epoch: that of a process which is no
// more.
func (reg *Registry) parsePosition(s string) (position, error) {
	if len(s) > maxPosition {
		return position{}, ErrBadCursor
	}
	epoch, rest, _ := strings.Cut(s, ".")
	digits, steps, isJoining := strings.Cut(rest, ".")
	at, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || strconv.FormatUint(at, 10) != digits || !IsID(epoch) {
		return position{}, ErrBadCursor
	}
	p := position{at: at, joined: -1}
	if isJoining {
		p.joined, err = strconv.Atoi(steps)
		if err != nil || strconv.Itoa(p.joined) != steps || p.joined < 0 {
			return position{}, ErrBadCursor
		}
	}
	if epoch != reg.epoch {
		return position{}, ErrExpired
	}
	return p, nil
}
