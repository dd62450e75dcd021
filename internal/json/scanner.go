package json

import (
	"encoding/binary"
	"math/bits"
)

// Scanner finds its way through JSON that comes in pieces, without keeping any
// of it: it knows how deep the brackets are and whether a byte stands in a
// string. What is no JSON is taken for what it looks most like.
type Scanner struct {
	depth    int
	inString bool
	escaped  bool // in a string, after a reverse solidus
}

// Class is what a byte of a JSON text is.
type Class uint8

// The classes. Opening and Closing are the brackets of both kinds, Begin and
// End the quotation marks of a string, Content what is between them, Scalar
// the bytes of numbers and literals, and of what is no JSON.
const (
	Space Class = iota
	Opening
	Closing
	Comma
	Colon
	Begin
	Content
	End
	Scalar
)

// Depth returns how many brackets are open.
func (s *Scanner) Depth() int { return s.depth }

// InString reports whether the next byte stands in a string, be it the mark
// that ends it.
func (s *Scanner) InString() bool { return s.inString }

// Next takes the next byte and returns what it is.
func (s *Scanner) Next(c byte) Class {
	if s.inString {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.inString = false
			return End
		}
		return Content
	}
	switch c {
	case '"':
		s.inString = true
		return Begin
	case '{', '[':
		s.depth++
		return Opening
	case '}', ']':
		s.depth--
		return Closing
	case ',':
		return Comma
	case ':':
		return Colon
	case ' ', '\t', '\n', '\r':
		return Space
	}
	return Scalar
}

// Content returns how many of the next bytes are content of the string that is
// open, and no escapes. It looks at eight bytes at a time; Next need not see
// them.
func (s *Scanner) Content(p []byte) int {
	if !s.inString || s.escaped {
		return 0
	}
	for i := 0; ; {
		if len(p)-i >= 8 {
			word := binary.LittleEndian.Uint64(p[i:])
			quote, solidus := word^everyByte*'"', word^everyByte*'\\'
			special := ((quote-everyByte)&^quote | (solidus-everyByte)&^solidus) & highBits
			if special == 0 {
				i += 8
				continue
			}
			return i + bits.TrailingZeros64(special)/8
		}
		if i == len(p) || p[i] == '"' || p[i] == '\\' {
			return i
		}
		i++
	}
}
