package fanout_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// BenchmarkOneClient is what one delta of 5 bytes costs where the only client
// reads it at once and the log is emptied behind it.
func BenchmarkOneClient(b *testing.B) {
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(b, s, 0)
	events := []event.Event{text("hello")}
	b.ReportAllocs()
	for b.Loop() {
		if err := oneDelta(s, c, events); err != nil {
			b.Fatal(err)
		}
	}
}

func oneDelta(s *fanout.Stream, c *fanout.Cursor, events []event.Event) error {
	if err := s.Append(events); err != nil {
		return err
	}
	batch := c.Read()
	for index, _, ok := batch.Next(0); ok; index, _, ok = batch.Next(0) {
		c.Advance(index)
	}
	s.Recycle()
	return nil
}

func TestOneClientAllocatesNothing(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(t, s, 0)
	events := []event.Event{text("hello")}
	allocs := testing.AllocsPerRun(1000, func() {
		if err := oneDelta(s, c, events); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Fatalf("%v allocations for each delta", allocs)
	}
	if c.Index() != 1001 {
		t.Fatalf("the reader has had %d deltas", c.Index())
	}
}

// BenchmarkOneClientWindow is the same for a client that never reads, where the
// log forgets by itself.
func BenchmarkOneClientWindow(b *testing.B) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(64)
	events := []event.Event{text("hello")}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Append(events); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWake is one delta for many followers, each in a goroutine: from the
// append until the last one has read it.
func BenchmarkWake(b *testing.B) {
	for _, followers := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(followers), func(b *testing.B) {
			s := fanout.NewStream(fanout.NewID(), 0)
			var ended sync.WaitGroup
			var waiting atomic.Int64
			all := make(chan struct{})
			for range followers {
				c := open(b, s, 0)
				ended.Go(func() {
					for {
						batch := c.Read()
						for index, _, ok := batch.Next(whole); ok; index, _, ok = batch.Next(whole) {
							c.Advance(index)
						}
						if c.Ended() {
							return
						}
						changed := c.Changed()
						if waiting.Add(1) == int64(followers) {
							waiting.Store(0)
							all <- struct{}{}
						}
						<-changed
					}
				})
			}
			<-all
			events := []event.Event{text("hello")}
			for b.Loop() {
				if err := s.Append(events); err != nil {
					b.Fatal(err)
				}
				<-all
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*followers), "ns/delivery")
			s.End(done)
			ended.Wait()
		})
	}
}

// BenchmarkKept measures the memory of a kept response of 1,000 tokens of 5
// bytes.
func BenchmarkKept(b *testing.B) {
	const responses = 500
	for b.Loop() {
		b.ReportMetric(float64(keptBytes(b, responses)), "B/1000-tokens")
	}
}

// BenchmarkMerge is one client that has missed 10,000 events: all of them as
// one frame, from the middle of the log, and as frames of at most 32 KiB.
func BenchmarkMerge(b *testing.B) {
	const before, missed = 5000, 10_000
	s := fanout.NewStream(fanout.NewID(), 0)
	for range before + missed {
		add(b, s, "hello")
	}
	c := open(b, s, before)
	for name, bound := range map[string]int{"whole": whole, "32KiB": 32 << 10} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				batch := c.Read()
				last, bytes := 0, 0
				for index, ev, ok := batch.Next(bound); ok; index, ev, ok = batch.Next(bound) {
					last, bytes = index, bytes+len(ev.Text)
				}
				if last != before+missed || bytes != 5*missed {
					b.Fatalf("%d bytes to %d", bytes, last)
				}
			}
		})
	}
}

// BenchmarkAppendFollowed is what a registered response adds to an append.
func BenchmarkAppendFollowed(b *testing.B) {
	reg := fanout.NewRegistry()
	reg.Limit(1 << 30)
	r := begin(b, reg, spec())
	events := []event.Event{text("hello")}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Append(events); err != nil {
			b.Fatal(err)
		}
	}
}
