package fanout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func TestNewIDIsFixedWidthBase62(t *testing.T) {
	seen := make(map[string]bool)
	for range 20_000 {
		id := fanout.NewID()
		if len(id) != 22 || strings.Trim(id, base62) != "" || !fanout.IsID(id) {
			t.Fatalf("%q", id)
		}
		if seen[id] {
			t.Fatalf("%q twice", id)
		}
		seen[id] = true
	}
}

// 62^22 is more than 2^128, so the first character only reaches 7, and the
// other places are all but uniform: of 62,000 ids each has each character
// 1,000 times, give or take six standard deviations.
func TestNewIDIsEvenlyDistributed(t *testing.T) {
	const ids = 62_000
	var counts [22][256]int
	for range ids {
		id := fanout.NewID()
		for i := range len(id) {
			counts[i][id[i]]++
		}
	}
	for i, count := range counts {
		if i == 0 {
			for _, c := range []byte("01234567") {
				if count[c] < ids/20 && c != '7' {
					t.Errorf("first character %c: %d times", c, count[c])
				}
			}
			continue
		}
		for _, c := range []byte(base62) {
			if count[c] < 800 || count[c] > 1200 {
				t.Errorf("character %c at %d: %d times of %d", c, i, count[c], ids)
			}
		}
	}
}

func TestIsID(t *testing.T) {
	const id = "5kQ0c1wDWnVYQ2zTnM8jXb"
	for s, want := range map[string]bool{
		id: true, strings.Repeat("0", 22): true, strings.Repeat("z", 22): true,
		"": false, id[1:]: false, id + "b": false, strings.Repeat("x", 1<<20): false,
		id[1:] + "/": false, id[1:] + ":": false, id[1:] + "@": false, id[1:] + "[": false,
		id[1:] + "`": false, id[1:] + "{": false, id[1:] + "\x00": false, id[2:] + "é": false,
	} {
		if fanout.IsID(s) != want {
			t.Errorf("%.40q: %v", s, !want)
		}
	}
}

func TestParseEventID(t *testing.T) {
	const id = "5kQ0c1wDWnVYQ2zTnM8jXb"
	for digits, want := range map[string]int{
		"0": 0, "1": 1, "9": 9, "10": 10, "1000000": 1_000_000, "2147483647": 1<<31 - 1,
	} {
		got, index, err := fanout.ParseEventID(id + ":" + digits)
		if got != id || index != want || err != nil {
			t.Errorf("%s: %q %d %v", digits, got, index, err)
		}
	}
	for name, s := range map[string]string{
		"empty":           "",
		"id alone":        id,
		"no index":        id + ":",
		"no id":           ":1",
		"path":            "bad/run:1",
		"negative":        "x:-1",
		"negative index":  id + ":-1",
		"negative zero":   id + ":-0",
		"plus sign":       id + ":+1",
		"leading zero":    id + ":01",
		"only zeros":      id + ":00",
		"20 digits":       id + ":12345678901234567890",
		"11 digits":       id + ":12345678901",
		"1 MB of digits":  id + ":" + strings.Repeat("9", 1<<20),
		"1 MB of id":      strings.Repeat("a", 1<<20) + ":1",
		"1 MB of colons":  strings.Repeat(":", 1<<20),
		"CR LF after":     id + ":1\r\n",
		"CR LF inside":    id + "\r\n:1",
		"header smuggled": id + ":1\r\nSet-Cookie: a=b",
		"space before":    " " + id + ":1",
		"space after":     id + ":1 ",
		"space inside":    id + ": 1",
		"two indexes":     id + ":1:2",
		"fraction":        id + ":1.0",
		"exponent":        id + ":1e3",
		"hexadecimal":     id + ":0x1",
		"underscore":      id + ":1_000",
		"other digits":    id + ":١",
		"NUL":             id + ":1\x00",
		"short id":        id[1:] + ":1",
		"long id":         id + "b:1",
		"dash":            id + "-1",
		"not UTF-8":       id + ":\xff",
	} {
		if got, index, err := fanout.ParseEventID(s); !errors.Is(err, fanout.ErrBadCursor) || got != "" || index != 0 {
			t.Errorf("%s: %.40q %d %v, want ErrBadCursor", name, got, index, err)
		}
	}
}

func TestAnIndexOfTheFutureIsABadCursor(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	add(t, s, "a", "b")
	for index, want := range map[int]error{2: nil, 3: fanout.ErrBadCursor, 1_000_000_000: fanout.ErrBadCursor} {
		id, parsed, err := fanout.ParseEventID(fmt.Sprintf("%s:%d", s.ID(), index))
		if err != nil || id != s.ID() {
			t.Fatal(err)
		}
		if _, err := s.Open(parsed); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", index, err, want)
		}
	}
}
