package fanout

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"strings"
)

// IDLen is the length of a response id.
const IDLen = 22

// maxIndexDigits bounds the index of a Last-Event-ID: what is longer does not
// fit any log.
const maxIndexDigits = 10

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ErrBadCursor is the error for an event id that is not one of ours, or that
// names a place which the response has not reached.
var ErrBadCursor = errors.New("fanout: bad cursor")

// NewID returns a new response id: 128 random bits as 22 characters of
// 0-9A-Za-z.
func NewID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	hi, lo := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	var id [IDLen]byte
	for i := IDLen - 1; i >= 0; i-- {
		var rem uint64
		hi, rem = hi/62, hi%62
		lo, rem = bits.Div64(rem, lo, 62)
		id[i] = base62[rem]
	}
	return string(id[:])
}

// IsID reports whether s has the form of a response id.
func IsID(s string) bool {
	if len(s) != IDLen {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// ParseEventID splits an event id, "<response id>:<index>", into its parts.
// The error is ErrBadCursor for anything that is not exactly of that form:
// signs, spaces, leading zeros and endless digits too.
func ParseEventID(s string) (id string, index int, err error) {
	return parsePlace(s, ":")
}

// parsePlace splits an id and an index that sep separates.
func parsePlace(s, sep string) (id string, index int, err error) {
	id, digits, found := strings.Cut(s, sep)
	if !found || !IsID(id) || digits == "" || len(digits) > maxIndexDigits ||
		(digits[0] == '0' && digits != "0") || strings.Trim(digits, "0123456789") != "" {
		return "", 0, ErrBadCursor
	}
	index, err = strconv.Atoi(digits)
	if err != nil {
		return "", 0, ErrBadCursor
	}
	return id, index, nil
}
