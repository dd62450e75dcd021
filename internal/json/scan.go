package json

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

const (
	firstPrintable = 0x20
	firstNonASCII  = utf8.RuneSelf

	shortEscapeLen = 2 // \n
	longEscapeLen  = 6 // \u001f

	// A word of eight bytes that are all the same.
	everyByte = 0x0101010101010101
	highBits  = everyByte * 0x80
)

// shortEscape has the letter of the short escape of a character, where JSON
// has one; unescaped is its inverse.
var (
	shortEscape = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
	unescaped   = [256]byte{'"': '"', '\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
)

// canonicalLen returns how many leading bytes of s are escaped text already.
func canonicalLen(s string) int {
	for i := 0; ; {
		i += plainLen(s[i:])
		if i == len(s) || s[i] != '\\' {
			return i
		}
		n := escapeLen(s[i:])
		if n == 0 {
			return i
		}
		i += n
	}
}

// escapeLen returns the length of the escape that s starts with, or 0 where
// it is none that Append would write.
func escapeLen(s string) int {
	switch {
	case len(s) < shortEscapeLen:
		return 0
	case unescaped[s[1]] != 0:
		return shortEscapeLen
	case len(s) < longEscapeLen || s[1] != 'u':
		return 0
	case s[2] == '2' && s[3] == '0' && s[4] == '2' && (s[5] == '8' || s[5] == '9'):
		return longEscapeLen // U+2028 and U+2029
	case s[2] != '0' || s[3] != '0':
		return 0
	}
	high, low := hexValue[s[4]], hexValue[s[5]]
	if high == 8 && s[5] == '5' {
		return longEscapeLen // U+0085
	}
	// Of the control characters, those without a short escape; a digit above
	// 9 in its lower case.
	if high > 1 || low > 0xf || s[5] != hexDigits[low] || shortEscape[high<<4|low] != 0 {
		return 0
	}
	return longEscapeLen
}

// plainLen returns how many leading bytes of s stand for themselves: it stops
// at a quotation mark, a reverse solidus, a control character, a separator or
// invalid UTF-8. ASCII goes eight bytes at a time, since nearly all deltas are that.
func plainLen(s string) int {
	i := 0
	for {
		if len(s)-i >= 8 {
			special := specialBytes(binary.LittleEndian.Uint64(bytesOf(s[i:])))
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) / 8
		}
		if i == len(s) {
			return i
		}
		switch c := s[i]; {
		case c >= firstNonASCII:
			r, size := utf8.DecodeRuneInString(s[i:])
			if size == 1 || isSeparator(r) {
				return i
			}
			i += size
		case c < firstPrintable || c == '"' || c == '\\':
			return i
		default:
			i++
		}
	}
}

// isSeparator reports whether r ends a line for the line readers of some
// languages, Python's among them.
func isSeparator(r rune) bool { return r == '\u2028' || r == '\u2029' || r == '\u0085' }

// specialBytes sets the high bit of the first byte of word, in little-endian
// order, that is not a plain ASCII character. Bits above that one mean
// nothing; no bit at all means that there is no such byte.
func specialBytes(word uint64) uint64 {
	quote := word ^ everyByte*'"'
	solidus := word ^ everyByte*'\\'
	return ((word-everyByte*firstPrintable)&^word | // below the printable
		(quote-everyByte)&^quote | // zero
		(solidus-everyByte)&^solidus | // zero
		word) & highBits
}

// subpartLen returns how many bytes of s, which starts with invalid UTF-8,
// one U+FFFD stands for: as many as begin a character that then breaks off,
// at least one.
func subpartLen(s string) int {
	lead := s[0]
	if lead < 0xE0 || lead > 0xF4 || len(s) == 1 {
		return 1
	}
	// The range of the second byte: it is narrower where a longer form, a
	// surrogate or a character beyond U+10FFFF would begin.
	low, high := byte(0x80), byte(0xBF)
	switch lead {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	switch {
	case s[1] < low || s[1] > high:
		return 1
	case lead < 0xF0 || len(s) == 2 || s[2]&0xC0 != 0x80:
		return 2
	default:
		return 3
	}
}

// bytesOf returns the memory of s, which must not be written to.
func bytesOf(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // G103: read only, and its length is that of s
}

// view returns b as a string of the same memory, valid until b changes.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // G103: gone before the caller writes to b
}
