package redis_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// The timeouts of calls: quick is shorter than the faults, and patient longer than
// a machine with much else to do takes for what must succeed at once.
const (
	quick   = 500 * time.Millisecond
	patient = 20 * time.Second
)

// hang is when something hangs, however slow the machine is.
const hang = 2 * time.Minute

// scene is a producing and a reading replica, each behind a proxy of its own, and
// responses that run through them.
type scene struct {
	*testing.T
	timeout      time.Duration // of a call
	server       *redistest.Server
	toA, toB     *redistest.Proxy
	a, b         *store.Replica
	running      sync.WaitGroup
	mu           sync.Mutex
	whole, wrong int // copies
	locals       int // how often a response was local only
}

func newScene(t *testing.T, timeout time.Duration, args ...string) *scene {
	t.Helper()
	s := &scene{T: t, timeout: timeout, server: redistest.Start(t, args...)}
	s.toA, s.toB = redistest.NewProxy(t, s.server.Addr), redistest.NewProxy(t, s.server.Addr)
	s.a, s.b = s.join(s.toA), s.join(s.toB)
	return s
}

func (s *scene) join(p *redistest.Proxy) *store.Replica {
	s.Helper()
	db, err := redis.Open(redis.Config{URL: p.URL(), Timeout: redis.Duration(s.timeout)})
	if err != nil {
		s.Fatal(err)
	}
	r := store.Join(db, nil)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = r.Close(ctx)
		_ = db.Close()
	})
	return r
}

// produce lets a response of so many tokens, 10 ms apart, run on A and be
// followed on B: from the start, from the middle and after the end.
func (s *scene) produce(seed uint64, tokens int) {
	s.running.Go(func() {
		spec := &store.Spec{
			ID: fanout.NewID(), Access: fanout.Access{Scope: "h", Owner: "o"}, Dialect: "text",
			Started: time.Now(), Keep: time.Minute,
		}
		begun, err := s.a.Begin(s.Context(), spec)
		if err != nil {
			begun.Ref = store.Ref{} // local only, for now
		}
		log, owner := storetest.NewLog(), storetest.NewOwner()
		writer := s.a.Write(spec, begun.Ref, log, owner)
		for i, ev := range storetest.Sample(seed, tokens) {
			log.Add(ev)
			if ev.Kind.IsTerminal() {
				writer.Ended()
			} else {
				writer.Appended(1, len(ev.Text))
			}
			if i == 1 || i == tokens/2 {
				s.follow(spec, log)
			}
			time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond) //nolint:gosec // a test
		}
		ctx, cancel := context.WithTimeout(s.Context(), hang)
		defer cancel()
		if err := writer.Wait(ctx); err != nil {
			s.Errorf("the copy of %s: %v", spec.ID, err)
			return
		}
		s.follow(spec, log)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.locals += owner.Locals()
	})
}

// follow follows a response on B and compares the copy with the log.
func (s *scene) follow(spec *store.Spec, log *storetest.Log) {
	s.running.Go(func() {
		copied := storetest.NewLog()
		deadline := time.Now().Add(hang)
		for {
			_, _, err := s.b.Follow(s.Context(), spec.ID, spec.Access, copied)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				s.Errorf("Follow: %v", err)
				return
			}
			time.Sleep(100 * time.Millisecond) // as a client that comes back
		}
		select {
		case <-copied.Over():
		case <-time.After(time.Until(deadline)):
			n, _ := copied.Len()
			want, _ := log.Len()
			s.Errorf("hangs at event %d of %d", n, want)
			return
		}
		s.judge(copied, log)
	})
}

func (s *scene) judge(copied, log *storetest.Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	diff := copied.Diff(log)
	n, _ := copied.Len()
	want, _ := log.Len()
	if diff == "" && n == want {
		s.whole++
		return
	}
	s.wrong++
	s.Errorf("%d events of %d, %v: %s", n, want, copied.Err(), diff)
}

// finish waits for everything and prints a line of the table.
func (s *scene) finish(name string) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(3 * hang):
		s.Fatal("hangs")
	}
	s.Logf("| %s | %d | %d | %d |", name, s.whole, s.wrong, s.locals)
	if s.whole == 0 {
		s.Error("nothing was copied")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const responses, tokens = 8, 600 // about 6 s
	var running sync.WaitGroup
	for _, test := range []struct {
		name  string
		args  []string
		fault func(s *scene)
	}{
		{"nothing", nil, func(*scene) {}},
		{"delay of 100 ms", nil, func(s *scene) {
			s.toA.Delay(50 * time.Millisecond)
			s.toB.Delay(50 * time.Millisecond)
		}},
		{"A is cut off 10 times", nil, func(s *scene) { s.often(10, s.toA.Cut) }},
		{"B is cut off 10 times", nil, func(s *scene) { s.often(10, s.toB.Cut) }},
		{"A is away for 3 s", nil, func(s *scene) {
			s.toA.Refuse(true)
			time.Sleep(3 * time.Second)
			s.toA.Refuse(false)
		}},
		{"B is away for 3 s", nil, func(s *scene) {
			s.toB.Refuse(true)
			time.Sleep(3 * time.Second)
			s.toB.Refuse(false)
		}},
		{"A's link stalls for 5 s", nil, func(s *scene) { s.stall(s.toA) }},
		{"B's link stalls for 5 s", nil, func(s *scene) { s.stall(s.toB) }},
		{"Redis is paused for 5 s", nil, func(s *scene) {
			s.server.Pause()
			time.Sleep(5 * time.Second)
			s.server.Resume()
		}},
		{"Redis restarts empty", nil, func(s *scene) {
			s.server.Stop()
			time.Sleep(time.Second)
			s.server.Restart()
		}},
		{"Redis restarts with its log", []string{"--appendonly", "yes", "--appendfsync", "always"}, func(s *scene) {
			s.server.Stop()
			time.Sleep(time.Second)
			s.server.Restart()
		}},
		{"FLUSHALL", nil, func(s *scene) { s.server.Do("FLUSHALL") }},
		{"no memory for 3 s", nil, func(s *scene) {
			s.server.Do("CONFIG", "SET", "maxmemory", "1mb")
			time.Sleep(3 * time.Second)
			s.server.Do("CONFIG", "SET", "maxmemory", "0")
		}},
	} {
		// All at once, since they hardly do anything but wait.
		running.Go(func() {
			t.Run(test.name, func(t *testing.T) {
				s := newScene(t, quick, test.args...)
				for i := range responses {
					s.produce(uint64(i), tokens) //nolint:gosec // small
				}
				time.Sleep(2 * time.Second)
				test.fault(s)
				s.finish(test.name)
			})
		})
	}
	running.Wait()
}

func (s *scene) often(n int, f func()) {
	for range n {
		f()
		time.Sleep(200 * time.Millisecond)
	}
}

func (s *scene) stall(p *redistest.Proxy) {
	p.Stall(true)
	time.Sleep(5 * time.Second)
	p.Stall(false)
}

// Away when the responses begin.
func TestRedisIsAwayAtFirst(t *testing.T) {
	t.Parallel()
	s := newScene(t, quick)
	s.toA.Refuse(true)
	for i := range 20 {
		s.produce(uint64(i), 300) //nolint:gosec // small
	}
	time.Sleep(2 * time.Second)
	s.toA.Refuse(false)
	s.finish("Redis is away when the POST comes")
	if s.locals == 0 {
		t.Error("nothing was marked local only")
	}
}
