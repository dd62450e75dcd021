// Package json handles the insides of JSON strings, which is the form in
// which text travels through this module: escaped once when it is read, put
// between quotes when it is written.
//
// The invariant: escaped text is the inside of a JSON string (RFC 8259,
// section 7) in its one shortest form. It is valid UTF-8, and only quotation
// marks, reverse solidi and control characters are escaped.
package json

import "bytes"

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
		if c := s[i]; c < firstNonASCII {
			dst = appendEscape(dst, c)
			i++
		} else {
			dst = append(dst, replacement...)
			i += subpartLen(s[i:])
		}
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
			dst = append(dst, hexValue[escaped[4]]<<4|hexValue[escaped[5]])
		}
		escaped = escaped[n:]
	}
}

// Valid reports whether escaped is escaped text in the sense of this package.
func Valid(escaped []byte) bool {
	return canonicalLen(view(escaped)) == len(escaped)
}

// appendEscape appends the shortest escape of c, which must be one of the
// characters that need one.
func appendEscape(dst []byte, c byte) []byte {
	if short := shortEscape[c]; short != 0 {
		return append(dst, '\\', short)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
