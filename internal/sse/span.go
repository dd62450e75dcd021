package sse

import "slices"

// maxKept is the largest buffer, in bytes, that a splitter keeps for its next
// event: enough for the usual event of a token stream, and little beside the
// rest of what an open stream costs while it is silent.
const maxKept = 4 << 10

// span collects the bytes of a value. It is a window of the piece where the
// value lies there in one run, and a copy otherwise; at most one of its two
// slices is not empty.
type span struct {
	window []byte
	buf    []byte
}

// add appends b, which stays unchanged until keep or reset.
func (s *span) add(b []byte) {
	switch {
	case len(b) == 0:
	case s.size() == 0:
		s.window = slices.Clip(b)
	default:
		s.keep()
		s.buf = append(s.buf, b...)
	}
}

// keep copies what lies in the piece, which is about to be gone.
func (s *span) keep() {
	if len(s.window) > 0 {
		s.buf = append(s.buf, s.window...)
		s.window = nil
	}
}

// reset empties the span. What bytes has returned is still good until the
// next add, since a small buffer is used again and a large one let go.
func (s *span) reset() {
	s.window = nil
	s.buf = s.buf[:0]
	if cap(s.buf) > maxKept {
		s.buf = nil
	}
}

func (s *span) size() int { return len(s.window) + len(s.buf) }

func (s *span) bytes() []byte {
	if len(s.buf) > 0 {
		return slices.Clip(s.buf)
	}
	return s.window
}
