package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

// serve keeps all of n places busy for rounds × hold, their releases spread
// evenly, and leaves them taken.
func serve(t *testing.T, l *limit.Limiter, n, rounds int, hold time.Duration) []*limit.Slot {
	t.Helper()
	slots := make([]*limit.Slot, 0, n)
	for range n {
		slots = append(slots, mustAcquire(t, l, ""))
	}
	for range rounds {
		for i := range slots {
			time.Sleep(hold / time.Duration(n))
			slots[i].Release()
			slots[i] = mustAcquire(t, l, "")
		}
	}
	return slots
}

func wantRetryAfter(t *testing.T, l *limit.Limiter, key string, atLeast, atMost time.Duration) {
	t.Helper()
	got := l.RetryAfter(key)
	if got < atLeast || got > atMost || got%time.Second != 0 {
		t.Fatalf("RetryAfter(%q) = %v, want whole seconds from %v to %v", key, got, atLeast, atMost)
	}
}

func TestRetryAfterFollowsTheRateAndTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 10, Queue: 9, Wait: time.Minute})
		slots := serve(t, l, 10, 20, 20*time.Second) // one place every 2 s
		wantRetryAfter(t, l, "", 2*time.Second, 3*time.Second)
		for range 9 {
			start(t, l, "")
		}
		wantRetryAfter(t, l, "", 18*time.Second, 21*time.Second) // ten are ahead
		for _, s := range slots {
			s.Release()
		}
	})
}

func TestRetryAfterBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 1, Queue: 1})
		wantRetryAfter(t, l, "", time.Second, time.Second) // a place is free
		slots := serve(t, l, 1, 1000, 10*time.Millisecond)
		wantRetryAfter(t, l, "", time.Second, time.Second) // soon
		// A backend that hangs is seen although nothing is given back.
		time.Sleep(time.Hour)
		wantRetryAfter(t, l, "", time.Minute, time.Minute)
		slots[0].Release()
		wantRetryAfter(t, l, "", time.Second, time.Second)
	})
}

func TestRetryAfterBeforeAnythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 2})
		mustAcquire(t, l, "")
		mustAcquire(t, l, "")
		wantRetryAfter(t, l, "", 5*time.Second, 5*time.Second) // half of the assumed 10 s
	})
}

func TestRetryAfterOutlastsIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 2})
		for _, s := range serve(t, l, 2, 20, 40*time.Second) {
			s.Release()
		}
		time.Sleep(12 * time.Hour)
		mustAcquire(t, l, "")
		mustAcquire(t, l, "")
		wantRetryAfter(t, l, "", 15*time.Second, 25*time.Second)
	})
}

// A key at its limit waits for its own requests, not for others'.
func TestRetryAfterOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 20, PerKey: 20})
		serve(t, l, 18, 20, 20*time.Second)
		l.Configure(limit.Config{Max: 20, PerKey: 2})
		mustAcquire(t, l, "k")
		wantRetryAfter(t, l, "k", time.Second, time.Second)
		mustAcquire(t, l, "k")
		wantRetryAfter(t, l, "k", 9*time.Second, 11*time.Second)
		wantRetryAfter(t, l, "other", time.Second, 2*time.Second)
	})
}

// After a lower Max, places must become free before one is of use.
func TestRetryAfterWithMorePlacesTakenThanThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Max: 10})
		serve(t, l, 10, 20, 20*time.Second)
		l.Configure(limit.Config{Max: 1})
		wantRetryAfter(t, l, "", 19*time.Second, 21*time.Second)
	})
}
