package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

func TestNoQueueTurnsAwayAtOnce(t *testing.T) {
	l := limit.New(limit.Config{Max: 1})
	slot := mustAcquire(t, l, "")
	if _, err := l.Acquire(t.Context(), ""); !errors.Is(err, limit.ErrTooMany) {
		t.Fatalf("second Acquire: %v, want ErrTooMany", err)
	}
	slot.Release()
	mustAcquire(t, l, "").Release()
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 10, Wait: time.Minute})
		held := mustAcquire(t, l, "")
		var queue []*request
		for range 10 {
			queue = append(queue, start(t, l, ""))
		}
		start(t, l, "").want(t, limit.ErrQueueFull)
		wantStats(t, l, 1, 10)
		for i, r := range queue {
			held.Release()
			r.want(t, nil)
			for _, later := range queue[i+1:] {
				if !later.waits() {
					t.Fatalf("a request behind number %d was served with it", i)
				}
			}
			held = r.slot
		}
		held.Release()
		wantStats(t, l, 0, 0)
	})
}

// A newcomer must not take the place that a release has just freed while
// others wait, even where it asks before they have woken up.
func TestNobodyPassesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 1, Wait: time.Minute})
		held := mustAcquire(t, l, "")
		for range 100 {
			waiting := start(t, l, "")
			held.Release()
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			if _, err := l.Acquire(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("newcomer: %v, want it behind the one that waited", err)
			}
			cancel()
			waiting.want(t, nil)
			held = waiting.slot
		}
	})
}

func TestQueueTimeoutComesExactlyAtWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 2, Wait: 5 * time.Second})
		mustAcquire(t, l, "")
		first := start(t, l, "")
		time.Sleep(2 * time.Second)
		second := start(t, l, "")
		time.Sleep(3*time.Second - time.Nanosecond)
		if !first.waits() {
			t.Fatal("the request gave up before its time")
		}
		time.Sleep(time.Nanosecond)
		first.want(t, limit.ErrQueueTimeout)
		if !second.waits() {
			t.Fatal("the second request's time counted from the first one's arrival")
		}
		wantStats(t, l, 1, 1)
		time.Sleep(2 * time.Second)
		second.want(t, limit.ErrQueueTimeout)
		if second.after != 5*time.Second {
			t.Fatalf("the second request waited %v, want 5s", second.after)
		}
	})
}

func TestNoWaitMeansAsLongAsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 1})
		slot := mustAcquire(t, l, "")
		r := start(t, l, "")
		time.Sleep(24 * time.Hour)
		if !r.waits() {
			t.Fatal("the request gave up")
		}
		slot.Release()
		r.want(t, nil)
	})
}

func TestLeavingTheQueueFreesTheWaitersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 3, Wait: time.Minute, PerKey: 1})
		held := mustAcquire(t, l, "held")
		first, second, third := start(t, l, "a"), start(t, l, "b"), start(t, l, "c")
		gone := errors.New("client gone")
		second.cancel(gone)
		second.want(t, gone)
		wantStats(t, l, 1, 2)
		// Both its place in the queue and its key are free at once.
		fourth := start(t, l, "b")
		wantStats(t, l, 1, 3)
		for _, r := range []*request{first, third, fourth} {
			held.Release()
			r.want(t, nil)
			held = r.slot
		}
	})
}

func TestAContextThatIsDoneTakesNothing(t *testing.T) {
	l := limit.New(limit.Config{Max: 1})
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if slot, err := l.Acquire(ctx, ""); slot != nil || !errors.Is(err, gone) {
		t.Fatalf("Acquire = %v, %v, want the context's cause", slot, err)
	}
	mustAcquire(t, l, "")
}

// The place that reaches a waiter together with the end of its context or of
// its wait must reach a waiter: either this one has it, or the next.
func TestAGrantThatRacesIsNotLost(t *testing.T) {
	ends := map[string]func(cancel context.CancelFunc){
		"cancel":  func(cancel context.CancelFunc) { cancel() },
		"timeout": func(context.CancelFunc) {},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 1000 {
					raceGrant(t, end)
				}
			})
		})
	}
}

func raceGrant(t *testing.T, end func(context.CancelFunc)) {
	t.Helper()
	l := limit.New(limit.Config{Max: 1, Queue: 2, Wait: time.Second})
	held := mustAcquire(t, l, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		slot, err := l.Acquire(ctx, "")
		if err == nil {
			slot.Release()
		}
	})
	synctest.Wait()
	wg.Go(func() {
		time.Sleep(time.Second)
		held.Release()
	})
	wg.Go(func() {
		time.Sleep(time.Second)
		end(cancel)
	})
	wg.Wait()
	wantStats(t, l, 0, 0)
	mustAcquire(t, l, "").Release()
}

// A client that left before its place came must not run, whatever it sees
// first.
func TestAGrantAfterTheEndOfTheContextIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("client gone")
		for range 100 {
			l := limit.New(limit.Config{Max: 1, Queue: 1, Wait: time.Minute})
			held := mustAcquire(t, l, "")
			r := start(t, l, "")
			r.cancel(gone)
			held.Release()
			r.want(t, gone)
			wantStats(t, l, 0, 0)
		}
	})
}

func TestReleaseCountsOnce(t *testing.T) {
	l := limit.New(limit.Config{Max: 2, PerKey: 2})
	slot := mustAcquire(t, l, "k")
	mustAcquire(t, l, "k")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(slot.Release)
	}
	wg.Wait()
	if active, _ := l.Stats(); active != 1 {
		t.Fatalf("active = %d after one of two slots was released eight times, want 1", active)
	}
	mustAcquire(t, l, "k")
	if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, limit.ErrKeyLimit) {
		t.Fatalf("third Acquire of the key: %v, want ErrKeyLimit", err)
	}
}

func TestPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 3, Queue: 10, Wait: time.Minute, PerKey: 2})
		a := mustAcquire(t, l, "a")
		mustAcquire(t, l, "a")
		// Places are free, and still the key is checked.
		start(t, l, "a").want(t, limit.ErrKeyLimit)
		// The empty key is one key.
		mustAcquire(t, l, "")
		empty := start(t, l, "")
		if !empty.waits() {
			t.Fatal("second request without a key does not wait")
		}
		start(t, l, "").want(t, limit.ErrKeyLimit)
		// Waiting requests count.
		b := []*request{start(t, l, "b"), start(t, l, "b")}
		start(t, l, "b").want(t, limit.ErrKeyLimit)
		a.Release()
		empty.want(t, nil)
		// A key below its limit waits for its turn among the others.
		late := start(t, l, "a")
		wantStats(t, l, 3, 3)
		empty.slot.Release()
		b[0].want(t, nil)
		if !late.waits() {
			t.Fatal("the key that came last was served first")
		}
	})
}

func TestPerKeyWithoutALimitOnTheWhole(t *testing.T) {
	l := limit.New(limit.Config{PerKey: 4})
	for i := range 1000 {
		key := fmt.Sprint("key", i)
		for range 4 {
			mustAcquire(t, l, key)
		}
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, limit.ErrKeyLimit) {
			t.Fatalf("fifth Acquire of %s: %v, want ErrKeyLimit", key, err)
		}
	}
	if active, _ := l.Stats(); active != 4000 {
		t.Fatalf("active = %d, want 4000", active)
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 2, Queue: 10, Wait: time.Minute})
		held := []*limit.Slot{mustAcquire(t, l, ""), mustAcquire(t, l, "")}
		queue := []*request{start(t, l, "a"), start(t, l, "b"), start(t, l, "c")}
		l.Drain()
		for _, r := range queue {
			r.want(t, limit.ErrDraining)
		}
		wantStats(t, l, 2, 0)
		if n := l.Keys(); n != 1 {
			t.Fatalf("%d keys are remembered, want that of the slots that are held", n)
		}
		held[0].Release()
		start(t, l, "").want(t, limit.ErrDraining)
		l.Configure(limit.Config{Max: 100})
		l.Drain()
		start(t, l, "").want(t, limit.ErrDraining)
		held[1].Release()
		wantStats(t, l, 0, 0)
	})
}

func TestTwoThousandAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, places, queue = 2000, 200, 100
		l := limit.New(limit.Config{Max: places, Queue: queue, Wait: 5 * time.Second})
		var mu sync.Mutex
		var slots []*limit.Slot
		refused := make(map[event.Code]int)
		gate := make(chan struct{})
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				<-gate
				slot, err := l.Acquire(t.Context(), "")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused[limit.Code(err)]++
				} else {
					slots = append(slots, slot)
				}
			})
		}
		close(gate)
		wantStats(t, l, places, queue)
		if len(slots) != places || refused["queue_full"] != requests-places-queue || len(refused) != 1 {
			t.Fatalf("%d run, refused %v", len(slots), refused)
		}
		for _, s := range slots[:60] {
			s.Release()
		}
		wantStats(t, l, places, queue-60)
		wg.Wait()
		if len(slots) != places+60 || refused["queue_timeout"] != queue-60 {
			t.Fatalf("%d ran, refused %v", len(slots), refused)
		}
	})
}

func TestCode(t *testing.T) {
	tests := map[event.Code]error{
		"too_many_streams": limit.ErrTooMany,
		"queue_full":       limit.ErrQueueFull,
		"queue_timeout":    fmt.Errorf("admit: %w", limit.ErrQueueTimeout),
		"key_limit":        limit.ErrKeyLimit,
		"draining":         limit.ErrDraining,
		"":                 context.Canceled,
	}
	for want, err := range tests {
		if got := limit.Code(err); got != want {
			t.Errorf("Code(%v) = %q, want %q", err, got, want)
		}
	}
	if got := limit.Code(nil); got != "" {
		t.Errorf("Code(nil) = %q", got)
	}
}
