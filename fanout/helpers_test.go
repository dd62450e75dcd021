package fanout_test

import (
	"math"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// The terminal events of the tests.
var (
	done      = &event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}}
	cancelled = &event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishCancelled}}
	failed    = &event.Event{Kind: event.Failed, Err: &event.Error{Code: event.CodeUpstreamError, Status: 502}}
)

func text(s string) event.Event {
	return event.Event{Kind: event.Text, Text: []byte(s)}
}

// add appends pieces of text, each as an append of its own.
func add(tb testing.TB, s interface {
	Append(events []event.Event) error
}, pieces ...string,
) {
	tb.Helper()
	for _, piece := range pieces {
		if err := s.Append([]event.Event{text(piece)}); err != nil {
			tb.Fatal(err)
		}
	}
}

func open(tb testing.TB, s *fanout.Stream, index int) *fanout.Cursor {
	tb.Helper()
	c, err := s.Open(index)
	if err != nil {
		tb.Fatalf("open at %d: %v", index, err)
	}
	return c
}

// whole is a bound that no text reaches.
const whole = math.MaxInt

// bound is the bound of a reader that merges, or does not.
func bound(merge bool) int {
	if merge {
		return whole
	}
	return 0
}

// rest returns the text that a batch has left, and the index of its last event;
// 0 for an empty one.
func rest(batch fanout.Batch, merge bool) (text string, last int) {
	for index, ev, ok := batch.Next(bound(merge)); ok; index, ev, ok = batch.Next(bound(merge)) {
		text += string(ev.Text)
		last = index
	}
	return text, last
}

// isReady reports whether a channel is closed.
func isReady(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
