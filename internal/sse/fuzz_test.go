package sse_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// outcome is what a splitter made of a stream.
type outcome struct {
	events []event
	err    error
	ended  bool
}

// fuzzSplit reads data whole, cut at an offset, and byte by byte with no more
// held than the limit, and fails where the outcomes differ.
func fuzzSplit(t *testing.T, fresh func(maxEvent int) sse.Splitter, data []byte, cut, limit uint) (outcome, int) {
	t.Helper()
	stream := string(data)
	at := int(cut % uint(len(stream)+1))
	maxEvent := int(limit%1024) + 1
	run := func(pieces ...string) outcome {
		s := fresh(maxEvent)
		var o outcome
		o.events, o.err = split(s, pieces...)
		if a, ok := s.(*sse.Array); ok {
			o.ended = a.Ended()
		}
		return o
	}
	whole := run(stream)
	for name, o := range map[string]outcome{
		"cut in two":   run(stream[:at], stream[at:]),
		"byte by byte": run(byteByByte(stream)...),
	} {
		if !slices.Equal(o.events, whole.events) || !errors.Is(o.err, whole.err) || o.ended != whole.ended {
			t.Fatalf("%q %s at %d: %+q, whole: %+q", stream, name, at, o.events, whole.events)
		}
	}
	for _, ev := range whole.events {
		if n := len(ev.data); n > maxEvent {
			t.Fatalf("an event of %d bytes, the limit is %d", n, maxEvent)
		}
	}
	s := fresh(maxEvent)
	for i := range data {
		s.Feed(data[i : i+1])
		drain(s)
		if size, capacity := sse.Held(s); size > maxEvent+256 || capacity > 2*(maxEvent+256)+32 {
			t.Fatalf("%d bytes held in %d, the limit is %d", size, capacity, maxEvent)
		}
	}
	return whole, maxEvent
}

// wantReference compares with the outcome of a reference algorithm.
func wantReference(t *testing.T, data []byte, got outcome, want []event, err error) {
	t.Helper()
	if !slices.Equal(got.events, want) || !errors.Is(got.err, err) {
		t.Fatalf("%q: %q, %v, want %q, %v", data, got.events, got.err, want, err)
	}
}

func FuzzParser(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut, limit uint) {
		got, maxEvent := fuzzSplit(t, func(n int) sse.Splitter { return sse.NewParser(n) }, data, cut, limit)
		wantReference(t, data, got, referenceEvents(string(data), maxEvent), nil)
	})
}

func FuzzLines(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut, limit uint) {
		got, maxEvent := fuzzSplit(t, func(n int) sse.Splitter { return sse.NewLines(n) }, data, cut, limit)
		wantReference(t, data, got, referenceLines(string(data), maxEvent), nil)
	})
}

func FuzzArray(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut, limit uint) {
		got, maxEvent := fuzzSplit(t, func(n int) sse.Splitter { return sse.NewArray(n) }, data, cut, limit)
		if want, ok := referenceElements(string(data), maxEvent); ok {
			wantReference(t, data, got, want, nil)
			if !got.ended {
				t.Fatalf("%q: not ended", data)
			}
		}
	})
}
