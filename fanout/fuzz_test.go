package fanout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// What is accepted is exactly what would be written: there is one id for a
// position, and every other is a bad cursor.
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
		own := strings.Replace(s, fuzzEpoch, reg.Epoch(), 1)
		at, joined, err := reg.ParsePosition(own)
		if err != nil {
			if !errors.Is(err, fanout.ErrBadCursor) && !errors.Is(err, fanout.ErrExpired) {
				t.Fatalf("%q: %v", own, err)
			}
			if _, err := reg.Subscribe("chat", fanout.Access{}, true, own); own != "" && err == nil {
				t.Fatalf("%q is a position of a channel, and none", own)
			}
			return
		}
		again := fmt.Sprintf("%s.%d", reg.Epoch(), at)
		if joined >= 0 {
			again = fmt.Sprintf("%s.%d", again, joined)
		}
		if again != own || len(own) > fanout.MaxPosition {
			t.Fatalf("%q was read as %q", own, again)
		}
		// and nothing of it is found on a channel without responses
		sub, err := reg.Subscribe("chat", fanout.Access{}, true, own)
		if err != nil {
			if !errors.Is(err, fanout.ErrBadCursor) {
				t.Fatalf("%q: %v", own, err)
			}
			return
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
