package timeouts_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

var defaults = timeouts.Limits{
	FirstToken:    5 * time.Minute,
	BetweenTokens: 2 * time.Minute,
	Total:         30 * time.Minute,
	Heartbeat:     15 * time.Second,
}

func nothing() {}

func expireNothing(*timeouts.TimeoutError) {}

// Ten thousand watches live at once.
func TestWatchIsSmall(t *testing.T) {
	if size := reflect.TypeFor[timeouts.Watch]().Size(); size > 192 {
		t.Errorf("a Watch takes %d bytes, want at most 192", size)
	} else {
		t.Logf("a Watch takes %d bytes", size)
	}
}

func TestProgressAllocatesNothing(t *testing.T) {
	w := timeouts.New(defaults, expireNothing, nothing)
	defer w.StopAndWait()
	w.Begin()
	w.EnableHeartbeat()
	w.Output()
	allocs := testing.AllocsPerRun(1000, func() {
		w.Output()
		w.Wrote()
		w.Block()
		w.Unblock()
	})
	if allocs != 0 {
		t.Errorf("one token costs %v allocations, want none", allocs)
	}
}

func BenchmarkOutput(b *testing.B) {
	w := timeouts.New(defaults, expireNothing, nothing)
	defer w.StopAndWait()
	w.EnableHeartbeat()
	b.ReportAllocs()
	for b.Loop() {
		w.Output()
	}
}

func BenchmarkWrote(b *testing.B) {
	w := timeouts.New(defaults, expireNothing, nothing)
	defer w.StopAndWait()
	w.EnableHeartbeat()
	b.ReportAllocs()
	for b.Loop() {
		w.Wrote()
	}
}

// BenchmarkLife is a stream from its beginning to its end.
func BenchmarkLife(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		w := timeouts.New(defaults, expireNothing, nothing)
		w.Begin()
		w.EnableHeartbeat()
		w.Output()
		w.Wrote()
		w.StopAndWait()
	}
}
