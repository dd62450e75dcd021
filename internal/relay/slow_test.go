package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// deltas returns n deltas, the first of them with the number from.
func deltas(from, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(enginetest.Delta(fmt.Sprintf("t%d ", from+i)))
	}
	return b.String()
}

// Block holds the upstream back, and the time for that does not count against
// the model.
func TestBlockHoldsTheUpstreamBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := 0
		s := newSite(t, attached, func(w http.ResponseWriter, r *http.Request) error {
			enginetest.EventStream(w)
			for range 100 {
				if r.Context().Err() != nil {
					panic(http.ErrAbortHandler)
				}
				if err := enginetest.Say(w, deltas(1, 1)); err != nil {
					return err
				}
				said++
			}
			return enginetest.Say(w, enginetest.Stop)
		}, func(s *site) {
			s.WriteTimeout = 0
			s.Limits = timeouts.Limits{FirstToken: time.Second, BetweenTokens: time.Second}
		})
		x := s.request(t, streams)
		x.Stall()
		x.Take(300)
		x.send()
		time.Sleep(time.Hour)
		synctest.Wait()
		if said > 10 {
			t.Errorf("%d were taken from the upstream", said)
		}
		x.TakeAll()
		x.wait()
		equal(t, "deltas", strings.Count(x.Body(), `{"text":"t1 "}`), 100)
		x.wantOutcome(t, "done")
	})
}

// Where the upstream is not to be held back, a burst makes no client slow: one
// that takes what comes misses nothing.
func TestBurstMakesNoClientSlow(t *testing.T) {
	t.Parallel()
	for _, w := range []way{tied, dropping, resumable} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, w, script(deltas(1, 500)+deltas(501, 500), deltas(1001, 1000), enginetest.Stop))
				x := s.ask(t, streams).wait()
				if w != resumable { // there they may be merged
					equal(t, "deltas", strings.Count(x.Body(), "data: {\"text\""), 2000)
				}
				equal(t, "text", strings.Count(x.Body(), "t2000 "), 1)
				equal(t, "end", strings.HasSuffix(x.Body(), x.stopped(2001)), true)
				equal(t, "gaps", strings.Count(x.Body(), "event: gap"), 0)
			})
		})
	}
}

// A client that is stuck in a write is left behind by drop and told of the gap,
// and cut off by disconnect; the upstream is not held back for longer than a
// moment.
func TestStuckClients(t *testing.T) {
	t.Parallel()
	backend := func(w http.ResponseWriter, r *http.Request) error {
		enginetest.EventStream(w)
		for i := range 200 {
			if err := enginetest.Say(w, deltas(i+1, 1)); err != nil || !enginetest.Pause(r, 10*time.Millisecond) {
				return err
			}
		}
		return enginetest.Say(w, enginetest.Stop)
	}
	t.Run("drop", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, dropping, backend)
			x := s.ask(t, streams)
			time.Sleep(105 * time.Millisecond)
			x.Stall()
			time.Sleep(time.Second)
			x.TakeAll()
			x.wait()
			if x.took > 2100*time.Millisecond {
				t.Errorf("the upstream was held back: %v", x.took)
			}
			contains(t, x.Body(), "event: gap\ndata: {\"dropped\":")
			equal(t, "end", strings.HasSuffix(x.Body(), x.stopped(201)), true)
			equal(t, "counted", s.count(t, `slow_clients_total{action="dropped"}`), 1)
			x.wantOutcome(t, "done")
		})
	})
	t.Run("disconnect", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, tied, backend)
			x := s.ask(t, streams)
			time.Sleep(105 * time.Millisecond)
			x.Stall()
			x.wait()
			equal(t, "aborted", x.aborted, true)
			if x.took < 700*time.Millisecond || x.took > 900*time.Millisecond {
				t.Errorf("it was cut off after %v", x.took)
			}
			equal(t, "counted", s.count(t, `slow_clients_total{action="disconnected"}`), 1)
			equal(t, "write timeouts", s.count(t, `slow_clients_total{action="write_timeout"}`), 0)
			x.wantOutcome(t, "slow_client")
		})
	})
}

// A write that makes no progress ends the client whatever its policy: the
// response with it where it is bound to the client, and else not.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, script(enginetest.Delta("a"), 55*time.Second, enginetest.Delta("b"), enginetest.Stop))
		x := s.request(t, streams, "Idempotency-Key", "k")
		x.Stall()
		x.send().wait()
		equal(t, "took", x.took, 30*time.Second)
		equal(t, "aborted", x.aborted, true)
		equal(t, "counted", s.count(t, `slow_clients_total{action="write_timeout"}`), 1)
		if w != resumable {
			x.wantOutcome(t, "slow_client")
			equal(t, "streams that are left", s.count(t, "active_streams"), 0)
			return
		}
		y := s.ask(t, streams, "Idempotency-Key", "k").wait()
		equal(t, "another client", y.Body(), y.frame(1, "a")+ping+y.frame(2, "b")+y.stopped(3))
		x.wantOutcome(t, "done")
		equal(t, "calls", s.calls.Load(), 1)
	})
}

// A client that takes nothing holds up neither the producer, nor those that read
// the same response, nor their heartbeats.
func TestStuckClientHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, script(enginetest.Delta("a"), 20*time.Second, enginetest.Delta("b"), time.Second, enginetest.Stop),
			func(s *site) { s.WriteTimeout = time.Hour })
		stuck := s.request(t, streams, "Idempotency-Key", "k")
		stuck.Stall()
		stuck.send()
		synctest.Wait()
		other := s.ask(t, streams, "Idempotency-Key", "k").wait()
		equal(t, "took", other.took, 21*time.Second)
		equal(t, "body", other.Body(), other.frame(1, "a")+ping+other.frame(2, "b")+other.stopped(3))
		equal(t, "what the stuck one has", stuck.Body(), "")
		stuck.TakeAll()
		stuck.wait()
		equal(t, "what it has in the end", stuck.Body(), stuck.frame(1, "a")+stuck.frame(2, "b")+stuck.stopped(3))
	})
}

// One that is stuck in a heartbeat holds up neither the upstream's header nor
// the others.
func TestClientStuckInAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var header time.Duration
		begin := time.Now()
		s := newSite(t, resumable, func(w http.ResponseWriter, r *http.Request) error {
			enginetest.Pause(r, 16*time.Second)
			enginetest.EventStream(w)
			header = time.Since(begin)
			enginetest.Pause(r, 4*time.Second)
			return enginetest.Say(w, enginetest.Delta("a"), enginetest.Stop)
		})
		stuck := s.request(t, streams, "Idempotency-Key", "k")
		stuck.Stall()
		stuck.send()
		synctest.Wait()
		other := s.ask(t, streams, "Idempotency-Key", "k")
		time.Sleep(18 * time.Second)
		synctest.Wait()
		equal(t, "the header came after", header, 16*time.Second)
		equal(t, "the other one", other.Body(), ping)
		equal(t, "the stuck one", stuck.Body(), "")
		stuck.TakeAll() // before its own follower would have to wait for its heartbeat
		equal(t, "the stuck one in the end", stuck.wait().Body(), ping+stuck.frame(1, "a")+stuck.stopped(2))
		equal(t, "the other one in the end", other.wait().Body(), stuck.Body())
	})
}
