package drain_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
)

var config = drain.Config{Spread: 5 * time.Second, Retry: 2 * time.Second}

// guest is a client that does what it is told and notes when.
type guest struct {
	*drain.Member
	start             time.Time
	away, ended, gone atomic.Int64 // ms after start, -1 while it has not happened
	leaves            chan struct{}
}

// visit joins and stays until it is sent away, ended or told to leave. One that
// is stubborn leaves only when it is cut.
func visit(g *drain.Group, returning drain.Returning, stubborn bool) *guest {
	v := &guest{start: time.Now(), leaves: make(chan struct{})}
	for _, moment := range []*atomic.Int64{&v.away, &v.ended, &v.gone} {
		moment.Store(-1)
	}
	over, cut := make(chan struct{}), make(chan struct{})
	note := func(moment *atomic.Int64) {
		if !moment.CompareAndSwap(-1, time.Since(v.start).Milliseconds()) {
			panic("twice")
		}
	}
	v.Member = g.Join(returning,
		func() { note(&v.ended); close(over) },
		func() { note(&v.gone); close(cut) })
	go func() {
		defer v.Leave()
		if stubborn {
			<-cut
			return
		}
		select {
		case <-v.Away():
			note(&v.away)
		case <-over:
		case <-v.leaves:
		}
	}()
	return v
}

func visits(g *drain.Group, n int, returning drain.Returning) []*guest {
	list := make([]*guest, n)
	for i := range list {
		list[i] = visit(g, returning, false)
	}
	return list
}

func (v *guest) check(t *testing.T, what string, away, ended, gone int64) {
	t.Helper()
	if v.away.Load() != away || v.ended.Load() != ended || v.gone.Load() != gone {
		t.Errorf("%s: away, ended, cut at %d, %d, %d ms, not %d, %d, %d",
			what, v.away.Load(), v.ended.Load(), v.gone.Load(), away, ended, gone)
	}
}

// All that can come back are sent away, each at a moment of its own, and the
// moments fill the spread evenly.
func TestReloadSpreadsReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		g := drain.New(config)
		guests := append(visits(g, n/2, drain.OnReload), visits(g, n/2, drain.Always)...)
		synctest.Wait()
		start := time.Now()
		g.Reload(drain.OnReload)
		g.Reload(drain.OnReload)
		time.Sleep(config.Spread)
		synctest.Wait()
		if g.Len() != 0 || g.Reason() != drain.Reload {
			t.Errorf("%d clients are left, reason %q", g.Len(), g.Reason())
		}
		moments := make([]int64, 0, n)
		for _, v := range guests {
			moments = append(moments, v.away.Load())
		}
		slices.Sort(moments)
		if moments[0] < 0 || moments[n-1] > time.Since(start).Milliseconds() {
			t.Fatalf("from %d to %d ms", moments[0], moments[n-1])
		}
		for i, at := range moments { // of a uniform distribution this is off by 3% once in 30 million runs
			if want := int64(i) * config.Spread.Milliseconds() / n; max(at-want, want-at) > 150 {
				t.Fatalf("client %d of %d leaves at %d ms, far from %d", i, n, at, want)
			}
		}
	})
}

func TestWhoStaysAtReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := drain.New(config)
		bound, outliving, channel := visit(g, drain.Never, false), visit(g, drain.OnExit, false), visit(g, drain.Always, false)
		g.Reload(drain.Always) // no configuration takes responses over
		late := visit(g, drain.Always, false)
		time.Sleep(time.Hour)
		bound.check(t, "bound to its connection", -1, -1, -1)
		outliving.check(t, "cannot come back", -1, -1, -1)
		if channel.away.Load() < 0 || late.away.Load() < 0 || g.Len() != 2 {
			t.Errorf("channels leave at %d and %d ms, %d clients", channel.away.Load(), late.away.Load(), g.Len())
		}
		close(bound.leaves)
		close(outliving.leaves)
	})
}

// At exit the one that can go on elsewhere is sent away, and the others are
// ended exactly at the deadline; only one that does not go is cut off.
func TestExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := drain.New(config)
		channel, bound, outliving := visit(g, drain.Always, false), visit(g, drain.Never, false), visit(g, drain.OnReload, false)
		stubborn, early := visit(g, drain.Never, true), visit(g, drain.Never, false)
		shared := visit(g, drain.OnExit, false)
		g.Exit(time.Now().Add(30 * time.Second))
		g.Exit(time.Now())
		g.Reload(drain.OnReload)
		close(early.leaves)
		time.Sleep(10 * time.Second)
		late := visit(g, drain.Never, true)
		if g.Reason() != drain.Exit || channel.away.Load() < 0 || channel.away.Load() >= 5000 || g.Len() != 4 {
			t.Errorf("reason %s, channel leaves at %d ms, %d clients", g.Reason(), channel.away.Load(), g.Len())
		}
		time.Sleep(time.Hour)
		channel.check(t, "channel", channel.away.Load(), -1, -1)
		bound.check(t, "bound", -1, 30_000, -1)
		if at := shared.away.Load(); at < 0 || at >= 5000 {
			t.Errorf("one whose response is shared leaves at %d ms", at)
		}
		outliving.check(t, "outlives a reload", -1, 30_000, -1)
		stubborn.check(t, "stubborn", -1, 30_000, 30_300)
		late.check(t, "late", -1, 20_000, 20_300)
		early.check(t, "early", -1, -1, -1)
		if g.Len() != 0 {
			t.Errorf("%d clients are left", g.Len())
		}
		visit(g, drain.Never, true).check(t, "after the deadline", -1, -1, -1)
		time.Sleep(drain.CutAfter)
		synctest.Wait()
		if g.Len() != 0 {
			t.Errorf("who comes after the deadline stays")
		}
	})
}

// A client whose turn has not come when the process exits has nowhere to come back to.
func TestExitAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := drain.New(config)
		guests := visits(g, 1000, drain.OnReload)
		g.Reload(drain.OnReload)
		time.Sleep(config.Spread / 2)
		synctest.Wait()
		left := g.Len()
		g.Exit(time.Now().Add(time.Minute))
		time.Sleep(59 * time.Second)
		if g.Len() != left || left == 0 || left == len(guests) {
			t.Errorf("%d of %d were left, now %d", left, len(guests), g.Len())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if g.Len() != 0 {
			t.Errorf("%d are left after the deadline", g.Len())
		}
	})
}

// A spread that is longer than the deadline does not take it away from anyone.
func TestSpreadWithinDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := drain.New(drain.Config{Spread: time.Hour, Retry: time.Second})
		guests := visits(g, 100, drain.Always)
		g.Exit(time.Now().Add(3 * time.Second))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, v := range guests {
			if v.away.Load() < 0 {
				t.Errorf("away at %d, ended at %d ms", v.away.Load(), v.ended.Load())
			}
		}
	})
}

func TestRetryIsJittered(t *testing.T) {
	g := drain.New(config)
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		retry := g.Retry()
		low, high = min(low, retry), max(high, retry)
	}
	if low < 1500*time.Millisecond || low > 1600*time.Millisecond || high < 2400*time.Millisecond || high > 2500*time.Millisecond {
		t.Errorf("from %v to %v", low, high)
	}
}

// Clients that leave by themselves leave no timers behind: nothing is ever
// called after Leave. A bubble ends with timers that are pending, so they are
// let run.
func TestNothingAfterLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := drain.New(config)
		var left atomic.Bool
		for _, returning := range []drain.Returning{drain.Never, drain.OnReload, drain.Always} {
			m := g.Join(returning, func() { t.Error("ended") }, func() { t.Error("cut") })
			if returning == drain.Always {
				g.Reload(drain.OnReload)
				g.Exit(time.Now().Add(time.Second))
			}
			defer func() {
				select {
				case <-m.Away():
					t.Error("sent away after it has left")
				default:
				}
			}()
			m.Leave()
		}
		// one that leaves between its end and the cut
		over := make(chan struct{})
		m := g.Join(drain.Never, func() { left.Store(true); close(over) }, func() { t.Error("cut") })
		<-over
		m.Leave()
		time.Sleep(time.Hour)
		if !left.Load() || g.Len() != 0 {
			t.Errorf("ended: %v, %d clients", left.Load(), g.Len())
		}
	})
}

// Everything at once, for the race detector.
func TestHammer(t *testing.T) {
	for round := range 30 {
		g := drain.New(drain.Config{Spread: time.Millisecond, Retry: time.Millisecond})
		var running sync.WaitGroup
		var cut, entered atomic.Int64
		for i := range 100 {
			running.Go(func() {
				for range 20 {
					over, gone := make(chan struct{}), make(chan struct{})
					entered.Add(1)
					m := g.Join(drain.Returning(i%3), sync.OnceFunc(func() { close(over) }), func() { cut.Add(1); close(gone) })
					select {
					case <-m.Away():
					case <-over:
					case <-time.After(time.Duration(i) * 50 * time.Microsecond):
					}
					m.Leave()
				}
			})
		}
		running.Go(func() { g.Reload(drain.OnReload) })
		running.Go(func() { g.Exit(time.Now().Add(time.Duration(round) * time.Millisecond)) })
		running.Go(func() { _, _, _ = g.Len(), g.Reason(), g.Retry() })
		running.Wait()
		if g.Len() != 0 || entered.Load() != 2000 {
			t.Fatalf("%d clients of %d are left", g.Len(), entered.Load())
		}
	}
}
