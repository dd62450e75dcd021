package json

import (
	"unicode/utf16"
	"unicode/utf8"
)

// notHex is the hexValue of what is no hexadecimal digit.
const notHex = 0xFF

// hexValue has the values of the hexadecimal digits.
var hexValue = func() (table [256]byte) {
	for c := range table {
		table[c] = notHex
	}
	for v, c := range []byte(hexDigits) {
		table[c] = byte(v)
	}
	for v, c := range []byte("ABCDEF") {
		table[c] = byte(10 + v)
	}
	return table
}()

// Clean returns what stands between the quotes of a JSON string as escaped
// text. raw is as some encoder wrote it: with longer escapes than needed,
// with surrogates that have no partner or with invalid UTF-8, which both
// become U+FFFD. A raw that no JSON string can contain is taken for what it
// looks most like, so that the result is escaped text in any case.
//
// Where raw is escaped text already, which is what nearly all encoders write,
// text is raw's own memory: it must not be written to, and it is valid as
// long as raw is. Else text is appended to dst. Either way newDst is the dst
// for the next call.
func Clean(dst []byte, raw string) (text, newDst []byte) {
	n := canonicalLen(raw)
	if n == len(raw) {
		return bytesOf(raw), dst
	}
	start := len(dst)
	for i := 0; ; n = canonicalLen(raw[i:]) {
		dst = append(dst, raw[i:i+n]...)
		if i += n; i == len(raw) {
			// The capacity ends with the text: who appends to it must not
			// write over the next one.
			return dst[start:len(dst):len(dst)], dst
		}
		dst, n = appendCleaned(dst, raw[i:])
		i += n
	}
}

// appendCleaned appends the one character or escape that s starts with, which
// is not as Append would write it, and returns its length in s.
func appendCleaned(dst []byte, s string) ([]byte, int) {
	switch c := s[0]; {
	case c != '\\':
		return appendSpecial(dst, s)
	case len(s) > 1 && s[1] == '/':
		return append(dst, '/'), shortEscapeLen
	}
	r, ok := codeUnit(s)
	switch {
	case !ok: // no escape at all: a reverse solidus that was not escaped
		return appendEscape(dst, '\\'), 1
	case r < firstNonASCII && (r < firstPrintable || shortEscape[r] != 0):
		return appendEscape(dst, byte(r)), longEscapeLen //nolint:gosec // G115: r is ASCII
	case isSeparator(r):
		return appendLongEscape(dst, r), longEscapeLen
	case !utf16.IsSurrogate(r):
		return utf8.AppendRune(dst, r), longEscapeLen
	}
	if low, ok := codeUnit(s[longEscapeLen:]); ok {
		if joined := utf16.DecodeRune(r, low); joined != utf8.RuneError {
			return utf8.AppendRune(dst, joined), 2 * longEscapeLen
		}
	}
	return append(dst, replacement...), longEscapeLen
}

// codeUnit returns the UTF-16 code unit of the \uXXXX that s starts with.
func codeUnit(s string) (r rune, ok bool) {
	if len(s) < longEscapeLen || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range bytesOf(s[2:longEscapeLen]) {
		v := hexValue[c]
		if v == notHex {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}
