package provider

import "bytes"

// hold keeps the bytes of a response that is not recognized yet, to be decoded
// from the start or passed on untouched.
//
// Comments and blank lines do not count against its limit. They are kept too,
// so that what is passed on is what came, but only as many bytes of them as
// the limit: beyond that they are dropped, which no reader of server-sent
// events notices.
type hold struct {
	buf     []byte
	blank   int // bytes at the beginning that are white space, or a byte order mark
	content int // bytes in finished lines that are no comments
	idle    int // the other finished lines and their terminators
	line    int // bytes in the open line
	comment bool
	isJSON  bool // a colon begins no comment

	isBinary bool // there are no lines
}

// add appends p, which ends at the end of a line if it has one.
func (h *hold) add(p []byte, limit int) {
	h.buf = append(h.buf, p...)
	if h.isBinary {
		return
	}
	for _, b := range p {
		switch {
		case b != '\n' && b != '\r':
			if h.line == 0 {
				h.comment = b == ':' && !h.isJSON
			}
			h.line++
		case h.comment || h.line == 0:
			h.idle += h.line + 1
			h.line, h.comment = 0, false
		default:
			h.content += h.line
			h.line = 0
		}
	}
	idle := h.idle
	if h.comment {
		idle += h.line
	}
	if idle > limit {
		h.dropIdle()
	}
}

// opening returns what the body begins with, and whether nothing was skipped to
// get there. Blank lines are looked at once, however many there are.
func (h *hold) opening() (start []byte, first bool) {
	if h.blank == 0 && bytes.HasPrefix(h.buf, byteOrderMark) {
		h.blank = len(byteOrderMark)
	}
	for h.blank < len(h.buf) && bytes.IndexByte(blanks, h.buf[h.blank]) >= 0 {
		h.blank++
	}
	return h.buf[h.blank:], h.blank == 0
}

// blanks are what may stand before a body.
var blanks = []byte(" \t\r\n")

// size returns how many bytes count.
func (h *hold) size() int {
	if h.isBinary {
		return len(h.buf)
	}
	if h.comment {
		return h.content
	}
	return h.content + h.line
}

// blankLine reports whether what is held ends with the line that ends an event.
func (h *hold) blankLine() bool { return h.line == 0 }

// dropIdle removes comments, and blank lines that end no event.
func (h *hold) dropIdle() {
	kept := h.buf[:0]
	blank := true // so was the last line that is kept
	for rest := h.buf; len(rest) > 0; {
		line, ended := cutLine(rest)
		rest = rest[len(line):]
		isBlank := line[0] == '\n' || line[0] == '\r'
		isComment := line[0] == ':' && !h.isJSON
		switch {
		case isComment && len(rest) == 0:
			// Its end may be to come, or the LF of it.
			kept = append(kept, ':')
			if ended {
				kept = append(kept, line[len(line)-1])
			} else {
				h.line = 1
			}
		case isComment, isBlank && blank:
		default:
			kept = append(kept, line...)
			blank = isBlank
		}
	}
	h.buf = kept
	h.idle, h.blank = 0, 0
}

// cutLine returns the first line of b, which is not empty, with the terminator
// that it may have.
func cutLine(b []byte) (line []byte, ended bool) {
	i := bytes.IndexAny(b, "\r\n")
	if i < 0 {
		return b, false
	}
	if b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n' {
		i++
	}
	return b[:i+1], true
}
