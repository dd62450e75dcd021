package fanout_test

import (
	"fmt"
	"runtime/metrics"
	"sync/atomic"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// announced starts a response on a channel.
func announced(tb testing.TB, reg *fanout.Registry, channel string) *fanout.Response {
	tb.Helper()
	s := spec()
	s.Channel = channel
	r := begin(tb, reg, s)
	r.Publish()
	return r
}

// With every lock held that is not its own, a response and its readers go on;
// if one of them was needed, this would never end.
func TestAppendingTakesNoLockOfOthers(t *testing.T) {
	reg := fanout.NewRegistry()
	reg.Limit(1 << 30)
	r, other := announced(t, reg, "a"), announced(t, reg, "b")
	c := follow(t, r, 0)
	sub, err := reg.Subscribe("a", alice, true, "")
	if err != nil {
		t.Fatal(err)
	}
	reg.WithLocksOf(other, func() {
		for range 1000 {
			add(t, r, "hello")
		}
		r.Describe(map[string][]string{"A": {"b"}}, "format", "model")
		if batch := c.Read(); batch.Len() != 1000 {
			t.Fatalf("%d events", batch.Len())
		}
		<-c.Changed()
		<-sub.Changed()
		for items := sub.Read(); len(items) > 0; items = sub.Read() {
			for i := range items {
				sub.Had(&items[i], 1000)
			}
		}
		if _, err := r.Follow(500); err != nil {
			t.Fatal(err)
		}
		r.Leave()
		if r.Readers() != 2 || r.Model() != "model" {
			t.Fatalf("%d readers of %q", r.Readers(), r.Model())
		}
	})
	sub.Close()
}

// BenchmarkAppendAtOnce is an append where a thousand goroutines append, each to
// a response of its own, and what they wait for each other's locks.
func BenchmarkAppendAtOnce(b *testing.B) {
	for _, channels := range []bool{false, true} {
		b.Run(fmt.Sprint("channels ", channels), func(b *testing.B) {
			const responses = 1000
			reg := fanout.NewRegistry()
			reg.Limit(4 << 30)
			all := make([]*fanout.Response, responses)
			for i := range all {
				all[i] = announced(b, reg, fmt.Sprint(i))
				if !channels {
					all[i] = begin(b, reg, spec())
				}
			}
			var next atomic.Int64
			b.SetParallelism(responses / 2)
			waited := mutexWait()
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := all[int(next.Add(1))%responses]
				events := []event.Event{text("hello")}
				for pb.Next() {
					if err := r.Append(events); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric((mutexWait()-waited)*1e9/float64(b.N), "ns-waiting/op")
		})
	}
}

// mutexWait is how long goroutines have waited for mutexes so far, in seconds.
func mutexWait() float64 {
	sample := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// BenchmarkForget is what it costs to forget a response of a channel that has
// as many.
func BenchmarkForget(b *testing.B) {
	for _, many := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				reg := fanout.NewRegistry()
				for range many {
					r := announced(b, reg, "chat")
					add(b, r, "x")
					r.End(done)
				}
				b.StartTimer()
				reg.Limit(1)
				b.StopTimer()
				if got := reg.Holdings(); got.Kept != 0 {
					b.Fatalf("%+v", got)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*many), "ns/response")
		})
	}
}

// BenchmarkCancelKey is what it costs to find the responses of a key among
// those of others.
func BenchmarkCancelKey(b *testing.B) {
	reg := fanout.NewRegistry()
	for i := range 40_000 {
		begin(b, reg, keyed(fmt.Sprint(i), "POST /", ""))
	}
	for b.Loop() {
		if found := reg.FindKey("777"); len(found) != 1 {
			b.Fatalf("%d", len(found))
		}
	}
}
