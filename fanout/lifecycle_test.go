package fanout_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// after lets d pass, and everything happen that is due then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// upstream is an upstream call that may be cancelled.
type upstream struct {
	mu     sync.Mutex
	causes []error
}

func (u *upstream) spec() fanout.Spec {
	s := spec()
	s.Cancel = func(cause error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.causes = append(u.causes, cause)
	}
	return s
}

func (u *upstream) want(tb testing.TB, causes ...error) {
	tb.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.causes) != len(causes) {
		tb.Fatalf("cancelled with %v, want %v", u.causes, causes)
	}
	for i, want := range causes {
		if !errors.Is(u.causes[i], want) {
			tb.Fatalf("cancelled with %v, want %v", u.causes, causes)
		}
	}
}

func TestGraceBeginsWhenTheLastReaderHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up := fanout.NewRegistry(), new(upstream)
		r := begin(t, reg, up.spec())
		after(2 * grace) // no reader has come yet: none has left
		follow(t, r, 0)
		follow(t, r, 0)
		after(2 * grace)
		r.Leave()
		after(2 * grace)
		if r.Readers() != 1 {
			t.Fatalf("%d readers", r.Readers())
		}
		r.Leave()
		after(grace - 1)
		up.want(t)
		follow(t, r, 0) // at the last moment
		after(2 * grace)
		up.want(t)
		r.Leave()
		after(grace - 1)
		up.want(t)
		after(1)
		up.want(t, fanout.ErrAbandoned)
		wantFind(t, reg, r, nil) // the producer ends it, nothing else
		r.End(cancelled)
		after(2 * keep)
		up.want(t, fanout.ErrAbandoned)
		wantNothing(t, reg)
	})
}

func TestAFailedFollowKeepsTheGraceRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up := fanout.NewRegistry(), new(upstream)
		r := begin(t, reg, up.spec())
		follow(t, r, 0)
		r.Leave()
		after(grace / 2)
		if _, err := r.Follow(1); !errors.Is(err, fanout.ErrBadCursor) {
			t.Fatalf("%v, want ErrBadCursor", err)
		}
		after(grace / 2)
		up.want(t, fanout.ErrAbandoned)
	})
}

// The grace is over, but before its timer has the lock a reader comes and goes:
// then a new grace has begun.
func TestAReaderAtTheLastMomentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up := fanout.NewRegistry(), new(upstream)
		r := begin(t, reg, up.spec())
		follow(t, r, 0)
		r.Leave()
		r.ComeAndGo(func() { time.Sleep(grace) })
		after(grace - 1)
		up.want(t)
		after(1)
		up.want(t, fanout.ErrAbandoned)
	})
}

func TestTheEndStopsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up := fanout.NewRegistry(), new(upstream)
		r := begin(t, reg, up.spec())
		follow(t, r, 0)
		r.Leave()
		after(grace - 1)
		r.End(done)
		after(grace)
		up.want(t)
	})
}

func TestCancelReachesTheUpstreamOnce(t *testing.T) {
	reg, up := fanout.NewRegistry(), new(upstream)
	r := begin(t, reg, up.spec())
	r.End(cancelled) // so that readers have their end at once
	r.Cancel(fanout.ErrCancelled)
	r.Cancel(nil)
	up.want(t, fanout.ErrCancelled)
}

// A cancelled upstream may end its response before Cancel returns: no lock may
// be held then.
func TestCancelMayEndTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		var r *fanout.Response
		s := spec()
		s.Cancel = func(error) { r.End(cancelled) }
		r = begin(t, reg, s)
		follow(t, r, 0)
		r.Leave()
		after(grace)
		if _, terminal := r.Head(); terminal != cancelled {
			t.Fatal("the response has not ended")
		}
		after(2 * keep)
		wantNothing(t, reg)
	})
}

func TestKeepCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		r := begin(t, reg, keyed("k", "POST /", ""))
		add(t, r, "a", "b")
		after(3 * keep) // a long response
		add(t, r, "c")
		wantFind(t, reg, r, nil)
		r.End(done)
		after(keep - 1)
		wantFind(t, reg, r, nil)
		c := follow(t, r, 1)
		if got, _ := rest(c.Read(), true); got != "bc" {
			t.Fatalf("%q", got)
		}
		r.Leave() // a reader in between makes it no longer
		after(1)
		wantFind(t, reg, r, fanout.ErrExpired)
		if _, err := r.Follow(0); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("follow: %v, want ErrExpired", err)
		}
		if size := r.Size(); size != 0 {
			t.Fatalf("an expired log holds %d bytes", size)
		}
		if _, found, err := reg.Begin(fanout.NewID(), keyed("k", "POST /", "other")); found || err != nil {
			t.Fatalf("the call of an expired response is not free: %v %v", found, err)
		}
	})
}

func TestAnExpiredIDIsRememberedForKeepAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		r := begin(t, reg, spec())
		r.End(done)
		after(keep)
		wantFind(t, reg, r, fanout.ErrExpired)
		bob := fanout.Access{Scope: alice.Scope, Owner: "bob"}
		if _, err := reg.Find(r.ID(), bob); !errors.Is(err, fanout.ErrUnknown) {
			t.Fatalf("as another owner: %v, want ErrUnknown", err)
		}
		after(keep - 1)
		wantFind(t, reg, r, fanout.ErrExpired)
		after(1)
		wantFind(t, reg, r, fanout.ErrUnknown)
		if _, err := r.Follow(0); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("who still has it: %v, want ErrExpired", err)
		}
		wantNothing(t, reg)
	})
}

func TestWhoReadsWhenKeepRunsOutHasEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		r := begin(t, reg, keyed("k", "POST /", ""))
		first, second := follow(t, r, 0), follow(t, r, 0)
		add(t, r, "a", "b")
		r.End(done)
		after(keep + grace)

		wantFind(t, reg, r, fanout.ErrExpired)
		if _, err := r.Follow(0); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("a reader who comes now: %v, want ErrExpired", err)
		}
		if _, found, err := reg.Begin(fanout.NewID(), keyed("k", "POST /", "other")); found || err != nil {
			t.Fatalf("the call is not free: %v %v", found, err)
		}
		r.Leave() // the first
		batch := second.Read()
		if got, last := rest(batch, true); got != "ab" || last != 3 || batch.Skipped != 0 {
			t.Fatalf("%q to %d, %d skipped", got, last, batch.Skipped)
		}
		r.Leave()
		if batch := first.Read(); batch.Skipped != 2 {
			t.Fatalf("the log is still there: %d skipped", batch.Skipped)
		}
		after(keep - 1)
		wantFind(t, reg, r, fanout.ErrExpired)
		after(1)
		wantFind(t, reg, r, fanout.ErrUnknown)
	})
}

func TestADiscardedResponseIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		r := begin(t, reg, keyed("k", "POST /", ""))
		c := follow(t, r, 0) // the client that made the call
		changed := c.Changed()
		if isReady(r.Discarded()) {
			t.Fatal("discarded at the beginning")
		}
		r.Discard(failed)
		r.Discard(failed)
		if !isReady(r.Discarded()) {
			t.Fatal("who waits for it does not learn it")
		}
		if isReady(changed) {
			t.Fatal("the log has changed")
		}
		wantFind(t, reg, r, fanout.ErrUnknown)
		if _, err := r.Follow(0); !errors.Is(err, fanout.ErrUnknown) {
			t.Fatalf("follow: %v, want ErrUnknown", err)
		}
		wantNothing(t, reg)
		r.Leave()
		r.End(done)
		after(2 * keep)
		wantNothing(t, reg)
	})
}

func TestDestructForgetsButLetsReadersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up, left := fanout.NewRegistry(), new(upstream), new(upstream)
		s := up.spec()
		s.Channel = "chat"
		read := begin(t, reg, s)
		c := follow(t, read, 0)
		read.Publish()
		unread := begin(t, reg, left.spec())
		follow(t, unread, 0)
		unread.Leave()
		ended := begin(t, reg, keyed("k", "POST /", ""))
		ended.End(done)
		expired := begin(t, reg, fanout.Spec{Access: alice, Keep: time.Second})
		expired.End(done)
		after(time.Second)

		s = spec()
		s.Channel = "chat"
		discarded := begin(t, reg, s)
		discarded.Publish()
		discarded.Discard(failed)

		if err := reg.Destruct(); err != nil {
			t.Fatal(err)
		}
		wantNothing(t, reg)
		for _, r := range []*fanout.Response{read, unread, ended, expired, discarded} {
			wantFind(t, reg, r, fanout.ErrUnknown)
		}
		add(t, read, "a")
		if got, _ := rest(c.Read(), true); got != "a" {
			t.Fatalf("the reader has %q", got)
		}
		after(grace)
		up.want(t)
		left.want(t, fanout.ErrAbandoned) // no reader will come
		read.End(done)
		unread.End(cancelled)
		if got, last := rest(c.Read(), true); got != "a" || last != 2 {
			t.Fatalf("the reader has %q to %d", got, last)
		}
		read.Leave()
		wantNothing(t, reg)
	})
}

func TestDescribeKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		r := begin(t, reg, spec())
		if r.Header() != nil || r.Format() != "" || r.Model() != "" {
			t.Fatal("something is known at the beginning")
		}
		r.Describe(map[string][]string{"Server": {"1"}}, "", "")
		r.Describe(nil, "openai-chat", "")
		r.Describe(nil, "", "gpt")
		if r.Header()["Server"][0] != "1" || r.Format() != "openai-chat" || r.Model() != "gpt" {
			t.Fatalf("%v %q %q", r.Header(), r.Format(), r.Model())
		}
		r.End(done)
		after(keep)
		if r.Header() != nil || r.Model() != "gpt" {
			t.Fatalf("expired: %v %q", r.Header(), r.Model())
		}
	})
}

// A response whose grace is over goes on as long as it is followed where the
// registry does not see it.
func TestFollowedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		var followed atomic.Bool
		followed.Store(true)
		cancelled := make(chan error, 1)
		r, _, err := reg.Begin(fanout.NewID(), fanout.Spec{
			Grace: time.Minute, Followed: followed.Load, Cancel: func(err error) { cancelled <- err },
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Follow(0); err != nil {
			t.Fatal(err)
		}
		r.Leave()
		after(10*time.Minute + time.Second)
		if len(cancelled) > 0 {
			t.Fatalf("it is cancelled: %v", <-cancelled)
		}
		followed.Store(false)
		if cause := <-cancelled; !errors.Is(cause, fanout.ErrAbandoned) {
			t.Errorf("it is cancelled with %v", cause)
		}
	})
}
