package fanout_test

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// What is accepted is exactly what would be written: there is one id for a
// place, and every other is a bad cursor.
func FuzzParseEventID(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		id, index, err := fanout.ParseEventID(s)
		if err != nil {
			if !errors.Is(err, fanout.ErrBadCursor) || id != "" || index != 0 {
				t.Fatalf("%q: %q %d %v", s, id, index, err)
			}
			return
		}
		if !fanout.IsID(id) || index < 0 || fmt.Sprintf("%s:%d", id, index) != s {
			t.Fatalf("%q was read as %q and %d", s, id, index)
		}
	})
}

// fuzzEpoch is the epoch that the committed positions have.
const fuzzEpoch = "5kQ0c1wDWnVYQ2zTnM8jXb"

func FuzzParsePosition(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		reg := fanout.NewRegistry()
		reg.Advance(1000)
		own := strings.Replace(s, fuzzEpoch, reg.Epoch(), 1)
		seq, indexes, err := reg.ParsePosition(own)
		if err != nil {
			if !errors.Is(err, fanout.ErrBadCursor) && !errors.Is(err, fanout.ErrExpired) {
				t.Fatalf("%q: %v", own, err)
			}
			return
		}
		if seq > 1000 || len(own) > fanout.MaxPosition {
			t.Fatalf("%q was taken", own)
		}
		// written again it is the same, whatever the order of its parts
		parts := []string{reg.Epoch(), fmt.Sprint(seq)}
		for id, index := range indexes {
			parts = append(parts, fmt.Sprintf("%s-%d", id, index))
		}
		given := strings.Split(own, ".")
		sort.Strings(parts[2:])
		sort.Strings(given[2:])
		if strings.Join(parts, ".") != strings.Join(given, ".") {
			t.Fatalf("%q was read as %q", given, parts)
		}
		// and nothing of it is found on a channel without responses
		sub, err := reg.Subscribe("chat", fanout.Access{}, true, own)
		if err != nil {
			t.Fatal(err)
		}
		if items := sub.Read(); len(items) != 0 {
			t.Fatalf("%d items", len(items))
		}
		sub.Close()
		if got := reg.Holdings(); got.Responses != 0 {
			t.Fatalf("%+v", got)
		}
	})
}
