package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/memory"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 7 * time.Second

var errAway = errors.New("away")

// broken is a Store that can be made to fail.
type broken struct {
	store.Store

	mu      sync.Mutex
	away    bool            // every call fails
	late    bool            // writes happen, but are said to have failed
	swallow bool            // batches are lost, but are said to have been written
	hold    chan struct{}   // calls wait for it; nil: they do not
	delay   time.Duration   // of every call
	appends []store.Batch   // that were tried
	at      []time.Duration // when, since start
	ends    int
	start   time.Time
}

func newBroken(s store.Store) *broken { return &broken{Store: s, start: time.Now()} }

func (b *broken) set(away, late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away, b.late = away, late
}

// fail returns the error of a call before it is made.
func (b *broken) fail() error {
	b.mu.Lock()
	hold, away, delay := b.hold, b.away, b.delay
	b.mu.Unlock()
	time.Sleep(delay)
	if hold != nil {
		<-hold
	}
	if away {
		return errAway
	}
	return nil
}

// lose returns the error of a call that was made.
func (b *broken) lose(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late {
		return errAway
	}
	return err
}

func (b *broken) Begin(ctx context.Context, spec *store.Spec) (store.Begun, error) {
	if err := b.fail(); err != nil {
		return store.Begun{}, err
	}
	begun, err := b.Store.Begin(ctx, spec)
	return begun, b.lose(err)
}

func (b *broken) Append(ctx context.Context, ref store.Ref, batch store.Batch) (store.Ack, error) {
	b.mu.Lock()
	copied := batch
	copied.Data = slices.Clone(batch.Data)
	b.appends, b.at = append(b.appends, copied), append(b.at, time.Since(b.start))
	b.mu.Unlock()
	if err := b.fail(); err != nil {
		return store.Ack{}, err
	}
	b.mu.Lock()
	swallow := b.swallow
	b.mu.Unlock()
	if swallow {
		return store.Ack{Last: batch.Last}, nil
	}
	ack, err := b.Store.Append(ctx, ref, batch)
	return ack, b.lose(err)
}

func (b *broken) Finish(ctx context.Context, ref store.Ref, f store.Final) (store.Ack, error) {
	b.mu.Lock()
	b.ends++
	b.mu.Unlock()
	if err := b.fail(); err != nil {
		return store.Ack{}, err
	}
	ack, err := b.Store.Finish(ctx, ref, f)
	return ack, b.lose(err)
}

func (b *broken) Beat(ctx context.Context, replica string, others []string) (store.Beat, error) {
	if err := b.fail(); err != nil {
		return store.Beat{}, err
	}
	return b.Store.Beat(ctx, replica, others)
}

func (b *broken) Read(ctx context.Context, id string, after int) (store.Page, error) {
	page, err := b.Store.Read(ctx, id, after) // the answer is what is late
	if err := b.fail(); err != nil {
		return store.Page{}, err
	}
	return page, err
}

// scene is a producing and a reading replica.
type scene struct {
	*testing.T
	db     store.Store
	toA    *broken
	toB    *broken
	a, b   *store.Replica
	spec   *store.Spec
	log    *storetest.Log
	owner  *storetest.Owner
	writer *store.Writer
}

// play runs a test with a response that has begun, in virtual time.
func play(t *testing.T, f func(s *scene)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memory.New(lease)
		s := &scene{T: t, db: db, toA: newBroken(db), toB: newBroken(db)}
		s.a, s.b = store.Join(s.toA, nil), store.Join(s.toB, nil)
		s.start()
		synctest.Wait()
		defer func() {
			for _, r := range []*store.Replica{s.a, s.b} {
				if err := r.Close(context.Background()); err != nil && !errors.Is(err, errAway) {
					t.Error(err)
				}
			}
		}()
		f(s)
	})
}

func (s *scene) start() {
	s.Helper()
	s.spec = &store.Spec{
		ID: fanout.NewID(), Access: fanout.Access{Scope: "h", Owner: "o"}, Channel: "chat", Dialect: "text",
		Started: time.Now(), Keep: time.Hour,
	}
	begun, err := s.a.Begin(s.Context(), s.spec)
	if err != nil && !errors.Is(err, errAway) {
		s.Fatal(err)
	}
	s.log, s.owner = storetest.NewLog(), storetest.NewOwner()
	s.writer = s.a.Write(s.spec, begun.Ref, s.log, s.owner)
}

func (s *scene) say(texts ...string) {
	n := 0
	for _, text := range texts {
		s.log.Add(event.Event{Kind: event.Text, Text: []byte(text)})
		n += len(text)
	}
	s.writer.Appended(len(texts), n)
	synctest.Wait()
}

func (s *scene) end() {
	s.log.Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}})
	s.writer.Ended()
	synctest.Wait()
}

func (s *scene) follow() *storetest.Log {
	s.Helper()
	copied := storetest.NewLog()
	if _, _, err := s.b.Follow(s.Context(), s.spec.ID, s.spec.Access, copied); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
	return copied
}

// same fails the test unless a copy is whole.
func (s *scene) same(copied *storetest.Log) {
	s.Helper()
	n, _ := copied.Len()
	want, _ := s.log.Len()
	if diff := copied.Diff(s.log); diff != "" || n != want || copied.Err() != nil {
		s.Errorf("%d events of %d, %v: %s", n, want, copied.Err(), diff)
	}
}

func (s *scene) complete() {
	s.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(s.Context(), time.Millisecond)
	defer cancel()
	if err := s.writer.Wait(ctx); err != nil {
		s.Errorf("Wait: %v", err)
	}
	s.same(s.follow())
}

// The first frame goes at once, then one each 100 ms, or 40 ms when somebody
// follows.
func TestBatches(t *testing.T) {
	t.Parallel()
	for _, followed := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "followed"}[followed], func(t *testing.T) {
			play(t, func(s *scene) {
				if followed {
					s.follow()
				}
				s.toA.start = time.Now()
				for range 26 {
					s.say("a")
					time.Sleep(20 * time.Millisecond)
				}
				every, batches := 100*time.Millisecond, 6
				if followed {
					every, batches = 40*time.Millisecond, 13
				}
				var want []time.Duration
				for at := time.Duration(0); len(want) < batches; at += every {
					want = append(want, at)
				}
				s.toA.mu.Lock()
				got := s.toA.at[:min(len(want), len(s.toA.at))]
				s.toA.mu.Unlock()
				if !slices.Equal(got, want) {
					s.Errorf("batches at %v, want %v", got, want)
				}
				s.end()
				s.complete()
			})
		})
	}
}

// What comes during a call waits as well, however long the call takes.
func TestBatchesThroughASlowLink(t *testing.T) {
	play(t, func(s *scene) {
		s.toA.mu.Lock()
		s.toA.delay = 50 * time.Millisecond
		s.toA.start = time.Now()
		s.toA.mu.Unlock()
		for range 50 {
			s.say("a")
			time.Sleep(10 * time.Millisecond)
		}
		s.toA.mu.Lock()
		for i, at := range s.toA.at {
			if at != time.Duration(i)*100*time.Millisecond {
				s.Errorf("batches at %v, want one each 100 ms", s.toA.at)
				break
			}
		}
		s.toA.mu.Unlock()
		s.end()
		time.Sleep(time.Second)
		s.complete()
	})
}

func TestBatcher(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		name          string
		events, bytes int
		followed      bool
		since         time.Duration
		want          time.Duration
		ok            bool
	}{
		{"nothing", 0, 0, false, time.Hour, 0, false},
		{"soon after the last", 1, 1, false, 30 * time.Millisecond, 70 * time.Millisecond, true},
		{"when somebody follows", 1, 1, true, 30 * time.Millisecond, 10 * time.Millisecond, true},
		{"after a pause", 1, 1, false, time.Second, -900 * time.Millisecond, true},
		{"63 events", 63, 63, false, 0, 100 * time.Millisecond, true},
		{"64 events", 64, 64, false, 0, 0, true},
		{"less than 16 KiB", 1, 16<<10 - 1, false, 0, 100 * time.Millisecond, true},
		{"16 KiB", 1, 16 << 10, false, 0, 0, true},
	} {
		var b store.Batcher
		b.Follow(test.followed)
		b.Wrote(now.Add(-test.since))
		if got, ok := b.Wait(now, test.events, test.bytes); got != test.want || ok != test.ok {
			t.Errorf("%s: %v, %v, want %v, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}

func TestAway(t *testing.T) {
	play(t, func(s *scene) {
		copied := s.follow()
		s.say("a")
		s.toA.set(true, false)
		for range 400 { // not as long as the lease
			s.say("b")
			time.Sleep(10 * time.Millisecond)
		}
		if !s.writer.Local() || s.owner.Locals() != 1 {
			s.Errorf("local: %v, told %d times", s.writer.Local(), s.owner.Locals())
		}
		s.toA.set(false, false)
		time.Sleep(time.Second) // it tries again once a second
		synctest.Wait()
		if s.writer.Local() {
			s.Error("still local")
		}
		s.same(copied)
		s.end()
		s.complete()
		s.same(copied)
	})
}

// A call that has succeeded although its answer was lost is made again.
func TestLostAnswers(t *testing.T) {
	play(t, func(s *scene) {
		copied := s.follow()
		for i := range 40 {
			s.toA.set(false, i%4 == 2)
			s.say("a", "b")
			time.Sleep(70 * time.Millisecond)
		}
		s.toA.set(false, true)
		s.end()
		time.Sleep(2 * time.Second)
		s.toA.set(false, false)
		time.Sleep(2 * time.Second)
		s.complete()
		s.same(copied)
	})
}

func TestAwayAtFirst(t *testing.T) {
	play(t, func(s *scene) {
		s.toA.set(true, false)
		s.start()
		s.writer.Announce()
		s.say("a")
		time.Sleep(3 * time.Second)
		if _, err := s.b.Find(s.Context(), s.spec.ID, s.spec.Access); !errors.Is(err, store.ErrUnknown) {
			s.Errorf("Find: %v", err)
		}
		s.toA.set(false, false)
		time.Sleep(2 * time.Second)
		copied := s.follow()
		s.same(copied)
		page, err := s.b.Channel(s.Context(), store.Channel{Access: s.spec.Access, Name: "chat"}, "", 10)
		if err != nil || !slices.Equal(page.Running, []string{s.spec.ID}) {
			s.Errorf("Channel: %+v, %v", page, err)
		}
		s.end()
		s.complete()
		s.same(copied)
	})
}

// A store that has forgotten everything gets it again.
func TestForgotten(t *testing.T) {
	play(t, func(s *scene) {
		copied := s.follow()
		s.say("a", "b")
		ref := store.Ref{ID: s.spec.ID, Fence: 1, Channel: store.Channel{Access: s.spec.Access, Name: "chat"}}
		if err := s.db.Discard(s.Context(), ref); err != nil {
			s.Fatal(err)
		}
		if !errors.Is(copied.Err(), store.ErrUnknown) {
			s.Errorf("the follower: %v", copied.Err())
		}
		time.Sleep(time.Second)
		s.say("c")
		time.Sleep(time.Second)
		copied = s.follow()
		s.same(copied)
		s.end()
		s.complete()
	})
}

// The same while the model is silent: there is no append that could find out.
func TestForgottenInSilence(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a", "b")
		ref := store.Ref{ID: s.spec.ID, Fence: 1}
		if err := errors.Join(s.db.Discard(s.Context(), ref), s.db.Leave(s.Context(), s.a.Name())); err != nil {
			s.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s.same(s.follow())
		s.end()
		s.complete()
	})
}

// A failover can lose what was acknowledged.
func TestFailover(t *testing.T) {
	play(t, func(s *scene) {
		copied := s.follow()
		s.say("a")
		s.toA.mu.Lock()
		s.toA.swallow = true
		s.toA.mu.Unlock()
		for range 5 {
			s.say("b", "c")
			time.Sleep(time.Second)
		}
		s.toA.mu.Lock()
		s.toA.swallow = false
		s.toA.mu.Unlock()
		s.say("d")
		time.Sleep(time.Second)
		s.same(copied)
		s.end()
		s.complete()
		s.same(copied)
	})
}

// The end is tried for some minutes; then the copy is made to say that it is
// incomplete.
func TestIncomplete(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a")
		copied := s.follow()
		s.toA.set(true, false)
		s.say("b")
		s.end()
		time.Sleep(store.Patience - time.Minute)
		if n, _ := copied.Len(); n != 2 || copied.Terminal() == nil {
			s.Errorf("%d events after the lease, want the first one and an end", n)
		}
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		if err := s.writer.Wait(ctx); !errors.Is(err, errAway) {
			s.Errorf("Wait: %v", err)
		}
	})
}

func TestSuperseded(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a")
		copied := s.follow()
		time.Sleep(lease)
		s.toA.set(true, false) // no Beat either
		time.Sleep(10 * time.Second)
		if end := copied.Terminal(); end == nil || end.Err.Code != event.CodeInterrupted {
			s.Fatalf("after 10 s the end is %+v", end)
		}
		s.toA.set(false, false)
		s.say("b")
		time.Sleep(2 * time.Second)
		select {
		case <-s.owner.Fenced:
		default:
			s.Error("the producer was not told")
		}
		if err := s.writer.Wait(s.Context()); !errors.Is(err, store.ErrFenced) {
			s.Errorf("Wait: %v", err)
		}
	})
}

// A replica whose own link was down does not take the others for dead.
func TestNobodyIsTakenForDeadTooEarly(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a")
		copied := s.follow()
		for range 5 {
			time.Sleep(20 * time.Second)
			s.toA.set(true, false)
			s.toB.set(true, false)
			time.Sleep(30 * time.Second) // all leases run out
			s.toB.set(false, false)
			time.Sleep(lease - time.Second)
			s.toA.set(false, false)
		}
		time.Sleep(20 * time.Second)
		if end := copied.Terminal(); end != nil {
			s.Fatalf("the end is %+v", end)
		}
		s.end()
		time.Sleep(2 * time.Second)
		s.complete()
		s.same(copied)
	})
}

// A replica that is too busy to renew its lease, and yet writes, is not dead.
func TestBusyIsNotDead(t *testing.T) {
	play(t, func(s *scene) {
		copied := s.follow()
		time.Sleep(lease)
		for range 60 {
			if err := s.db.Leave(s.Context(), s.a.Name()); err != nil {
				s.Fatal(err)
			}
			s.say("a")
			time.Sleep(time.Second)
		}
		if end := copied.Terminal(); end != nil {
			s.Fatalf("the end is %+v", end)
		}
		s.end()
		s.complete()
		s.same(copied)
	})
}

// Local logs never wait for the store.
func TestWriterDoesNotWait(t *testing.T) {
	play(t, func(s *scene) {
		hold := make(chan struct{})
		s.toA.mu.Lock()
		s.toA.hold = hold
		s.toA.mu.Unlock()
		begin := time.Now()
		for range 500 {
			s.log.Add(event.Event{Kind: event.Text, Text: []byte("a")})
			s.writer.Appended(1, 1)
		}
		s.writer.Describe(store.About{Model: "m"})
		s.writer.Announce()
		s.log.Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}})
		s.writer.Ended()
		if took := time.Since(begin); took != 0 {
			s.Errorf("it took %v", took)
		}
		s.toA.mu.Lock()
		s.toA.hold = nil
		s.toA.mu.Unlock()
		close(hold)
		time.Sleep(time.Second)
		s.complete()
	})
}

func TestCancel(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a")
		asked := time.Now()
		meta, err := s.b.Cancel(s.Context(), s.spec.ID, s.spec.Access, 500*time.Millisecond)
		if err != nil || meta.Status != fanout.InProgress || time.Since(asked) != 500*time.Millisecond {
			s.Errorf("Cancel: %+v, %v, after %v", meta.Status, err, time.Since(asked))
		}
		select {
		case <-s.owner.Cancelled:
		default:
			s.Error("the producer was not told")
		}
		s.say("b")
		time.Sleep(time.Second)
		select {
		case <-s.owner.Cancelled:
		default:
			s.Error("nor by the next append")
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			s.end()
		}()
		asked = time.Now()
		meta, err = s.b.Cancel(s.Context(), s.spec.ID, s.spec.Access, 500*time.Millisecond)
		if err != nil || meta.Status != fanout.Completed || time.Since(asked) != 50*time.Millisecond {
			s.Errorf("Cancel: %+v, %v, after %v", meta.Status, err, time.Since(asked))
		}
	})
}

// lateLog is a log to which the first events come while it is read, and just
// before them what is known of the response.
type lateLog struct {
	*storetest.Log
	come func()
}

func (l *lateLog) Since(dst []event.Event, index, bytes int) []event.Event {
	if come := l.come; come != nil {
		l.come = nil
		come()
	}
	return l.Log.Since(dst, index, bytes)
}

// What was known of a response before an event is in the store with the event.
func TestWriterDescribesFirst(t *testing.T) {
	play(t, func(s *scene) {
		s.spec.ID = fanout.NewID()
		begun, err := s.a.Begin(s.Context(), s.spec)
		if err != nil {
			s.Fatal(err)
		}
		log := &lateLog{Log: storetest.NewLog()}
		w := s.a.Write(s.spec, begun.Ref, log, s.owner)
		log.come = func() {
			w.Describe(store.About{Format: "f", Model: "m"})
			log.Add(event.Event{Kind: event.Text, Text: []byte("a")})
		}
		w.Describe(store.About{})
		w.Appended(1, 1)
		synctest.Wait()
		meta, err := s.b.Find(s.Context(), s.spec.ID, s.spec.Access)
		if err != nil || meta.Last != 1 || meta.About.Model != "m" {
			s.Errorf("%d events, about %+v, %v", meta.Last, meta.About, err)
		}
	})
}
