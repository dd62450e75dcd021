// Package json reads and writes JSON as this module needs it: a Cursor for what
// is there whole, a Scanner and what is built on it for what comes in pieces,
// and escaped text, which is the form in which text travels through this
// module: escaped once when it is read, put between quotes when it is written.
//
// The invariant: escaped text is the inside of a JSON string (RFC 8259,
// section 7) in its one shortest form. It is valid UTF-8, and only quotation
// marks, reverse solidi, control characters and the separators U+2028, U+2029
// and U+0085 are escaped.
package json

import (
	"bytes"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// replacement stands for what is not text: U+FFFD in UTF-8.
const replacement = "\uFFFD"

// Append appends s to dst as escaped text. Invalid UTF-8 becomes U+FFFD, one
// for each maximal subpart of a character (Unicode, section 3.9), which is
// what browsers do.
func Append(dst []byte, s string) []byte {
	for i := 0; ; {
		n := plainLen(s[i:])
		dst = append(dst, s[i:i+n]...)
		if i += n; i == len(s) {
			return dst
		}
		var size int
		dst, size = appendSpecial(dst, s[i:])
		i += size
	}
}

// AppendPlain appends to dst the text that escaped stands for. What is not
// escaped text in the sense of this package is copied as it is.
func AppendPlain(dst, escaped []byte) []byte {
	for {
		i := bytes.IndexByte(escaped, '\\')
		if i < 0 {
			return append(dst, escaped...)
		}
		dst = append(dst, escaped[:i]...)
		escaped = escaped[i:]
		n := escapeLen(view(escaped))
		switch n {
		case 0:
			dst = append(dst, '\\')
			n = 1
		case shortEscapeLen:
			dst = append(dst, unescaped[escaped[1]])
		default:
			r, _ := codeUnit(view(escaped))
			dst = utf8.AppendRune(dst, r)
		}
		escaped = escaped[n:]
	}
}

// Valid reports whether escaped is escaped text in the sense of this package.
func Valid(escaped []byte) bool {
	return canonicalLen(view(escaped)) == len(escaped)
}

// appendSpecial appends the character that s starts with and that does not stand
// for itself, and returns its length in s.
func appendSpecial(dst []byte, s string) ([]byte, int) {
	if c := s[0]; c < firstNonASCII {
		return appendEscape(dst, c), 1
	}
	if r, size := utf8.DecodeRuneInString(s); size > 1 {
		return appendLongEscape(dst, r), size
	}
	return append(dst, replacement...), subpartLen(s)
}

// appendLongEscape appends the long escape of r, which is below U+10000.
func appendLongEscape(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&0xf], hexDigits[r>>8&0xf], hexDigits[r>>4&0xf], hexDigits[r&0xf])
}

// appendEscape appends the shortest escape of c, which must be one of the
// characters that need one.
func appendEscape(dst []byte, c byte) []byte {
	if short := shortEscape[c]; short != 0 {
		return append(dst, '\\', short)
	}
	return appendLongEscape(dst, rune(c))
}
