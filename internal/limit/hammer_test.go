package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

// TestHammer lets requests come, wait, leave, time out and be served at
// random, under a limit that changes all the time, and then asks for every
// place back. Times are whole milliseconds of a fake clock, so that releases,
// cancels and timeouts often meet at the same instant.
func TestHammer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		for round := range 1000 {
			hammer(t, l, rand.New(rand.NewPCG(1, uint64(round))))
		}
	})
}

func hammer(t *testing.T, l *limit.Limiter, random *rand.Rand) {
	t.Helper()
	const requests = 40
	highest := 1 + random.IntN(5)
	config := func() limit.Config {
		return limit.Config{
			Max:    1 + random.IntN(highest),
			Queue:  random.IntN(20),
			Wait:   time.Duration(1+random.IntN(5)) * time.Millisecond,
			PerKey: random.IntN(4),
		}
	}
	l.Configure(config())
	var running atomic.Int64
	var wg sync.WaitGroup
	for range requests {
		arrive := time.Duration(random.IntN(10)) * time.Millisecond
		patience := time.Duration(1+random.IntN(8)) * time.Millisecond
		hold := time.Duration(random.IntN(3)) * time.Millisecond
		key := fmt.Sprint(random.IntN(4))
		wg.Go(func() {
			time.Sleep(arrive)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			slot, err := l.Acquire(ctx, key)
			if err != nil {
				return
			}
			if n := running.Add(1); n > int64(highest) {
				t.Errorf("%d run, and the limit was never above %d", n, highest)
			}
			time.Sleep(hold)
			running.Add(-1)
			slot.Release()
			slot.Release()
		})
	}
	for range 5 {
		time.Sleep(2 * time.Millisecond)
		l.Configure(config())
	}
	wg.Wait()
	wantStats(t, l, 0, 0)
	if n := l.Keys(); n != 0 {
		t.Fatalf("%d keys are remembered although nothing runs", n)
	}
	l.Configure(limit.Config{Max: highest})
	slots := make([]*limit.Slot, 0, highest)
	for range highest {
		slots = append(slots, mustAcquire(t, l, ""))
	}
	for _, s := range slots {
		s.Release()
	}
}

func TestAMillionKeysLeaveNothing(t *testing.T) {
	l := limit.New(limit.Config{Max: 100, PerKey: 1})
	window := make([]*limit.Slot, 100)
	for i := range window {
		window[i] = mustAcquire(t, l, fmt.Sprint("warm", i))
	}
	before := heap()
	for i := range 1_000_000 {
		window[i%100].Release()
		window[i%100] = mustAcquire(t, l, fmt.Sprint("Bearer sk-", i))
	}
	if n := l.Keys(); n != 100 {
		t.Errorf("%d keys are remembered, want the 100 that run", n)
	}
	if grown := int64(heap()) - int64(before); grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	runtime.KeepAlive(l)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func BenchmarkAcquireRelease(b *testing.B) {
	l := limit.New(limit.Config{Max: 1000, PerKey: 1000})
	b.ReportAllocs()
	for b.Loop() {
		slot, err := l.Acquire(b.Context(), "Bearer sk-0123456789")
		if err != nil {
			b.Fatal(err)
		}
		slot.Release()
	}
}
