package timeouts_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

func TestNothingHappensAfterStop(t *testing.T) {
	for _, after := range []time.Duration{0, second, 16 * second, 5*minute - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := watch(t, defaults)
			r.Begin()
			r.EnableHeartbeat()
			r.until(after)
			if after > 16*second {
				r.Output()
			}
			r.Stop()
			before := len(r.happenings)
			// Late calls of a producer or a client do not revive it.
			r.Begin()
			r.Output()
			r.Block()
			r.Unblock()
			r.EnableHeartbeat()
			r.Wrote()
			r.Stop()
			if r.StopTimer() {
				t.Errorf("stopped at %v, and a timer is left", after)
			}
			r.until(after + 24*time.Hour)
			if got := r.happenings[before:]; len(got) != 0 {
				t.Errorf("stopped at %v, and then came %v", after, got)
			}
		})
	}
}

// Whatever a callback sets off may stop the watch, also before the callback
// has returned.
func TestStopFromACallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *timeouts.Watch
		var expired, beats int
		w = timeouts.New(timeouts.Limits{Total: minute, Heartbeat: second},
			func(*timeouts.TimeoutError) { expired++; w.Stop() },
			func() {
				if beats++; beats == 3 {
					w.Stop()
				}
			})
		w.EnableHeartbeat()
		time.Sleep(time.Hour)
		w.StopAndWait()
		if beats != 3 || expired != 0 {
			t.Errorf("%d beats and %d expiries, want the third beat to end it", beats, expired)
		}

		w = timeouts.New(timeouts.Limits{Total: minute},
			func(*timeouts.TimeoutError) { expired++; w.Stop() }, nil)
		w.Begin() // orders the assignment of w before the callback
		time.Sleep(time.Hour)
		w.StopAndWait()
		if expired != 1 {
			t.Errorf("%d expiries, want one", expired)
		}
	})
}

func TestStopAndWaitWaitsForTheCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		w := timeouts.New(timeouts.Limits{Total: second},
			func(*timeouts.TimeoutError) { time.Sleep(minute); returned = true }, nil)
		time.Sleep(2 * second)
		w.StopAndWait()
		if !returned {
			t.Error("StopAndWait returned before the callback")
		}
	})
}

func TestTimeoutErrorIsFoundAsTheCause(t *testing.T) {
	tests := []struct {
		limits timeouts.Limits
		output bool
		cause  timeouts.Cause
		code   string
		text   string
	}{
		{timeouts.Limits{FirstToken: second}, false, timeouts.FirstToken, "first_token_timeout", "no model output within 1s"},
		{timeouts.Limits{BetweenTokens: second}, true, timeouts.BetweenTokens, "between_tokens_timeout", "no further model output within 1s"},
		{timeouts.Limits{Total: second}, true, timeouts.Total, "total_timeout", "longer than 1s"},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := timeouts.New(test.limits, func(err *timeouts.TimeoutError) { cancel(err) }, nil)
			defer w.StopAndWait()
			w.Begin()
			if test.output {
				w.Output()
			}
			<-ctx.Done()
			var timeout *timeouts.TimeoutError
			if !errors.As(context.Cause(ctx), &timeout) {
				t.Fatalf("cause %v is not a TimeoutError", context.Cause(ctx))
			}
			if timeout.Cause != test.cause || timeout.Code() != test.code || timeout.Limit != second {
				t.Errorf("timeout %+v, want %s after 1s", timeout, test.code)
			}
			if !strings.Contains(timeout.Error(), test.text) {
				t.Errorf("text %q, want %q in it", timeout, test.text)
			}
		})
	}
}

// TestHammer lets every method race with the timer and with Stop, and checks
// what must hold in any order.
func TestHammer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for round := range 300 {
			hammer(t, rand.New(rand.NewPCG(2, uint64(round))))
		}
		time.Sleep(24 * time.Hour)
	})
}

func hammer(t *testing.T, random *rand.Rand) {
	t.Helper()
	ms := func(n int) time.Duration { return time.Duration(1+random.IntN(n)) * time.Millisecond }
	var expired, beating, running atomic.Int32
	var stopped atomic.Bool
	callback := func() func() {
		running.Add(1)
		if stopped.Load() {
			t.Error("a callback runs after StopAndWait")
		}
		return func() { running.Add(-1) }
	}
	w := timeouts.New(
		timeouts.Limits{FirstToken: ms(20), BetweenTokens: ms(10), Total: ms(100), Heartbeat: ms(5)},
		func(*timeouts.TimeoutError) {
			defer callback()()
			if expired.Add(1) > 1 {
				t.Error("expired twice")
			}
		},
		func() {
			defer callback()()
			if beating.Add(1) > 1 {
				t.Error("two beats at a time")
			}
			time.Sleep(time.Millisecond)
			beating.Add(-1)
		})
	var wg sync.WaitGroup
	for _, call := range []func(){w.Begin, func() { w.Output() }, w.Wrote, func() { w.Block() }, w.Unblock, w.EnableHeartbeat} {
		delay, times := ms(8), random.IntN(20)
		wg.Go(func() {
			for range times {
				time.Sleep(delay)
				call()
			}
		})
	}
	if random.IntN(4) == 0 {
		delay := ms(50)
		wg.Go(func() { time.Sleep(delay); w.TotalOnly() })
	}
	time.Sleep(ms(100))
	w.StopAndWait()
	stopped.Store(true)
	if n := running.Load(); n != 0 {
		t.Errorf("%d callbacks run after StopAndWait", n)
	}
	wg.Wait()
}
