package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// sized returns a response whose log has one event of some KiB.
func sized(tb testing.TB, reg *fanout.Registry, kib int) *fanout.Response {
	tb.Helper()
	r := begin(tb, reg, spec())
	grow(tb, r, kib)
	return r
}

func grow(tb testing.TB, r *fanout.Response, kib int) {
	tb.Helper()
	add(tb, r, strings.Repeat("x", kib<<10))
}

func TestKeptResponsesGiveWayOnlyDownToHalfOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, up := fanout.NewRegistry(), new(upstream)
		reg.Limit(100 << 10)
		a, b := sized(t, reg, 26), sized(t, reg, 26)
		b.End(done)
		a.End(done) // the first to begin, the last to end
		c := begin(t, reg, up.spec())
		grow(t, c, 30)
		wantFind(t, reg, b, nil)
		grow(t, c, 30)
		wantFind(t, reg, b, fanout.ErrExpired)
		wantFind(t, reg, a, nil)
		up.want(t)

		reader := follow(t, c, 2)
		if err := c.Append([]event.Event{text(strings.Repeat("x", 40<<10))}); !errors.Is(err, fanout.ErrTooLarge) {
			t.Fatalf("%v, want ErrTooLarge", err)
		}
		up.want(t, fanout.ErrTooLarge)
		wantFind(t, reg, a, nil) // what is kept has its half
		if _, terminal := c.Head(); terminal != fanout.TooLarge {
			t.Fatalf("it ended with %+v", terminal)
		}
		if batch := reader.Read(); batch.Skipped != 1 || batch.Len() != 1 {
			t.Fatalf("the reader has %d events, %d skipped", batch.Len(), batch.Skipped)
		}
		if err := c.Append([]event.Event{text("x")}); !errors.Is(err, fanout.ErrTooLarge) {
			t.Fatalf("once more: %v, want ErrTooLarge", err)
		}
		c.Leave()
		after(2 * keep)
		wantNothing(t, reg)
	})
}

// The response that says little must not pay for the one that says much.
func TestTheLargestRunningResponseMakesRoom(t *testing.T) {
	reg, up := fanout.NewRegistry(), new(upstream)
	reg.Limit(100 << 10)
	s := up.spec()
	s.Channel, s.Call = "chat", fanout.Call{Key: "k"}
	large := begin(t, reg, s)
	large.Publish()
	l := listen(t, reg, alice, true, "", map[string]string{large.ID(): "large"})
	grow(t, large, 50)
	l.read(-1)
	l.told = nil
	late, notices := listen(t, reg, alice, true, "", l.names), listen(t, reg, alice, false, "", l.names)
	from := late.sub.Position()
	c := follow(t, large, 1)
	small := sized(t, reg, 10)
	grow(t, small, 15)
	grow(t, small, 15)
	up.want(t, fanout.ErrTooLarge)
	if _, terminal := small.Head(); terminal != nil {
		t.Fatalf("the small one has ended with %+v", terminal)
	}
	if batch := c.Read(); batch.Skipped != 0 || batch.Len() != 1 {
		t.Fatalf("who has had everything is told %d events, %d skipped", batch.Len(), batch.Skipped)
	}
	l.want("large:2 ", "large failed") // and so on its channel
	notices.want("large started", "large failed")
	notices.sub.Close()
	if err := late.sub.Err(); !errors.Is(err, fanout.ErrExpired) || len(late.sub.Read()) > 0 {
		t.Fatalf("who has not read its channel: %v, want ErrExpired", err)
	}
	late.sub.Close()
	if _, err := reg.Subscribe("chat", alice, true, from); !errors.Is(err, fanout.ErrExpired) {
		t.Fatalf("who comes back to its channel: %v, want ErrExpired", err)
	}
	wantAccount(t, reg)
	if _, err := large.Follow(0); !errors.Is(err, fanout.ErrForgotten) {
		t.Fatalf("who has not: %v, want ErrForgotten", err)
	}
	if _, found, err := reg.Begin(fanout.NewID(), s); found || err != nil {
		t.Fatalf("the call is not free: %v %v", found, err)
	}
	l.sub.Close()
}

func TestALowerLimitMakesRoomAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		a, b := sized(t, reg, 40), sized(t, reg, 40)
		a.End(done)
		b.End(done)
		reg.Limit(90 << 10)
		wantFind(t, reg, a, nil)
		reg.Limit(80 << 10)
		wantFind(t, reg, a, fanout.ErrExpired)
		wantFind(t, reg, b, nil)
		reg.Limit(0)
		sized(t, reg, 1<<10)
		wantFind(t, reg, b, nil)
	})
}

// A response that has readers is passed over once, so that an answer which
// ends before its reader has looked is not the first to go.
func TestWhatIsReadIsEvictedLater(t *testing.T) {
	reg := fanout.NewRegistry()
	reg.Limit(100 << 10)
	all := []*fanout.Response{sized(t, reg, 20), sized(t, reg, 20)}
	read, unread := all[0], all[1]
	c := follow(t, read, 0)
	var order []*fanout.Response // in which they are evicted
	for find(reg, read) == nil {
		r := sized(t, reg, 20)
		for _, r := range append(all, r) {
			r.End(done)
		}
		for _, r := range all {
			if find(reg, r) != nil && !slices.Contains(order, r) {
				order = append(order, r)
			}
		}
		all = append(all, r)
	}
	if n := slices.Index(order, read); order[0] != unread || n < 1 {
		t.Fatalf("the one that is read went as number %d of %d", n, len(order))
	}
	if batch := c.Read(); batch.Skipped != 1 || batch.Len() != 1 {
		t.Fatalf("%d events, %d skipped", batch.Len(), batch.Skipped)
	}
}

func find(reg *fanout.Registry, r *fanout.Response) error {
	_, err := reg.Find(r.ID(), r.Access)
	return err
}

func TestAReaderOfAnEvictedResponseKnowsThatItMissedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		r := begin(t, c.Registry, spec())
		reader := follow(t, r, 0)
		add(t, r, "a", "b", "c")
		batch := reader.Read()
		batch.Next(0)
		r.End(done)
		c.evict(r)
		if got, last := rest(batch, true); got != "bc" || last != 3 {
			t.Fatalf("what the reader held is %q to %d", got, last)
		}
		reader.Advance(1)
		late := reader.Read()
		index, ev, ok := late.Next(0)
		if late.Skipped != 2 || !ok || index != 4 || ev.Result != done.Result {
			t.Fatalf("%d skipped, then %d %+v", late.Skipped, index, ev)
		}
		if _, err := r.Follow(4); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("%v, want ErrExpired", err)
		}
		r.Leave()
		after(keep)
		wantFind(t, c.Registry, r, fanout.ErrUnknown)
	})
}

func TestAnOverdueResponseCanBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		r := sized(t, c.Registry, 3)
		follow(t, r, 0)
		r.End(done)
		after(keep)
		if size := r.Size(); size == 0 {
			t.Fatal("somebody reads it, and it is gone")
		}
		c.evict(r)
		if size := r.Size(); size != 0 {
			t.Fatalf("%d bytes", size)
		}
		after(keep / 2)
		r.Leave()
		after(keep / 2)
		wantFind(t, c.Registry, r, fanout.ErrUnknown)
	})
}

func TestReservations(t *testing.T) {
	reg := fanout.NewRegistry()
	if err := reg.Reserve(1 << 40); err != nil {
		t.Fatalf("without a limit: %v", err)
	}
	reg.Release(1 << 40)
	reg.Limit(100 << 10)
	a, b := sized(t, reg, 40), sized(t, reg, 40)
	a.End(done)
	b.End(done)
	running := begin(t, reg, spec())
	if err := reg.Reserve(30 << 10); err != nil {
		t.Fatalf("there was something to evict: %v", err)
	}
	wantFind(t, reg, a, fanout.ErrExpired)
	if err := reg.Reserve(30 << 10); !errors.Is(err, fanout.ErrFull) {
		t.Fatalf("what is kept has its half: %v, want ErrFull", err)
	}
	wantFind(t, reg, b, nil)
	if err := reg.Reserve(10 << 10); err != nil {
		t.Fatalf("there is room: %v", err)
	}
	if _, _, err := reg.Begin(fanout.NewID(), spec()); err != nil {
		t.Fatalf("there is room for a response: %v", err)
	}
	if err := reg.Reserve(4 << 10); !errors.Is(err, fanout.ErrFull) {
		t.Fatalf("the last eighth is for what runs: %v, want ErrFull", err)
	}
	grow(t, running, 4)
	if _, _, err := reg.Begin(fanout.NewID(), spec()); !errors.Is(err, fanout.ErrFull) {
		t.Fatalf("a response more: %v, want ErrFull", err)
	}
	reg.Release(40 << 10)
	if err := reg.Reserve(20 << 10); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
	reg.Release(20 << 10)
	wantAccount(t, reg)
}

// Whatever is reserved at once, no running response is cut for it, and no more
// is held than may be.
func TestReservationsAtOnceNeverOverdraw(t *testing.T) {
	const limit = 1 << 20
	reg, up := fanout.NewRegistry(), new(upstream)
	reg.Limit(limit)
	r := begin(t, reg, up.spec())
	var all sync.WaitGroup
	for i := range uint64(8) {
		rng := rand.New(rand.NewPCG(i, 10))
		all.Go(func() {
			for range 2000 {
				n := rng.IntN(limit)
				if reg.Reserve(n) == nil {
					if total := reg.Holdings().Total; total > limit {
						t.Errorf("%d bytes are held", total)
					}
					reg.Release(n)
				}
			}
		})
	}
	for range 2000 {
		add(t, r, "hello")
	}
	all.Wait()
	up.want(t)
	wantAccount(t, reg)
}

// wantAccount checks that what is accounted for is what is held.
func wantAccount(tb testing.TB, reg *fanout.Registry) {
	tb.Helper()
	total, active := reg.Accounted()
	if got := reg.Holdings(); got.Total != total || got.Active != active {
		tb.Fatalf("the account says %d, of that %d running; held are %d and %d", got.Total, got.Active, total, active)
	}
}

func TestTheAccountIsThatOfEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		var all []*fanout.Response
		for i := range 60 {
			s := keyed(fmt.Sprint(i%7), fmt.Sprint(i), "body")
			s.Channel = []string{"", "a", "b"}[i%3]
			r := begin(t, reg, s)
			r.Publish()
			for range 10 * i {
				add(t, r, "hello")
			}
			r.Describe(map[string][]string{"Server": {"x", "y"}}, "openai-chat", "")
			r.Describe(map[string][]string{"A": {"b"}}, "", "gpt")
			switch i % 5 {
			case 0:
				r.End(done)
				r.Describe(nil, "", "a model that is named late")
			case 1:
				r.End(failed)
			case 2:
				r.Discard(failed)
				add(t, r, "too late")
				r.Describe(nil, "", "too late")
			}
			wantAccount(t, reg)
			all = append(all, r)
		}
		after(keep)
		wantAccount(t, reg)
		for _, r := range all {
			r.Discard(failed)
			wantAccount(t, reg)
		}
		after(2 * keep)
		wantNothing(t, reg)
	})
}

// What the account says of things that are held must be about what they take.
// Each kind is held thousands of times, and measured on the heap.
func TestTheAccountIsWhatThingsTake(t *testing.T) {
	const many = 5000
	long := strings.Repeat("n", fanout.MaxName)
	own := func() *event.Event {
		return &event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop, Usage: new(event.TokenUsage)}}
	}
	words := func(i int) string { return fmt.Sprintf("%0200d", i) }
	kinds := map[string]func(reg *fanout.Registry, i int){
		"running": func(reg *fanout.Registry, _ int) { begin(t, reg, spec()) },
		"kept":    func(reg *fanout.Registry, _ int) { begin(t, reg, spec()).End(own()) },
		"with names": func(reg *fanout.Registry, i int) {
			s := keyed(words(i), words(i), words(i))
			s.Scope, s.Owner, s.Channel = words(i), words(i), words(i)
			begin(t, reg, s).End(own())
		},
		"with names too long": func(reg *fanout.Registry, i int) {
			name := fmt.Sprint(long, long, long, long, i)
			s := keyed(name, name, name)
			s.Scope, s.Owner, s.Channel = name, name, name
			begin(t, reg, s).End(own())
		},
		"on channels of their own": func(reg *fanout.Registry, i int) {
			s := spec()
			s.Channel = words(i)
			r := begin(t, reg, s)
			r.Publish()
			add(t, r, "x")
			r.End(own())
		},
		"on one channel": func(reg *fanout.Registry, _ int) {
			s := spec()
			s.Channel = "chat"
			r := begin(t, reg, s)
			r.Publish()
			add(t, r, "x")
			r.End(own())
		},
		"described": func(reg *fanout.Registry, i int) {
			header := make(map[string][]string)
			for k := range 10 {
				header[fmt.Sprint("X-Field-", k, i)] = []string{words(i), words(i + 1)}
			}
			begin(t, reg, spec()).Describe(header, "openai-chat", words(i))
		},
		"failed at length": func(reg *fanout.Registry, i int) {
			begin(t, reg, spec()).End(&event.Event{Kind: event.Failed, Err: &event.Error{
				Code: event.CodeUpstreamError, Message: words(i), Upstream: []byte(words(i) + words(i)),
			}})
		},
		"tool calls": func(reg *fanout.Registry, i int) {
			r := begin(t, reg, spec())
			for k := range 4 {
				ev := event.Event{Kind: event.ToolCall, Text: []byte("{}"), Tool: event.Tool{Index: k, ID: words(i), Name: words(i + 1)}}
				if err := r.Append([]event.Event{ev}); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, hold := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := fanout.NewRegistry()
				before := heap()
				for i := range many {
					hold(reg, i)
				}
				real := heap() - before
				said := reg.Holdings().Total
				t.Logf("%6d bytes each, %6d by the account: %s", real/many, said/many, name)
				if said < real*9/10 || said > real*14/10 {
					t.Errorf("%d bytes each, the account says %d", real/many, said/many)
				}
				if err := reg.Destruct(); err != nil {
					t.Fatal(err)
				}
				runtime.KeepAlive(reg)
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestATombstoneIsSmall(t *testing.T) {
	for _, many := range []int{1000, 10_000, 100_000} {
		before := heap()
		tombs := fanout.Tombstones(many)
		real := (heap() - before) / many
		if real > fanout.TombstoneSize || real < fanout.TombstoneSize/4 {
			t.Errorf("%d take %d bytes each, the account says %d", many, real, fanout.TombstoneSize)
		}
		runtime.KeepAlive(tombs)
	}
}

func TestLongNamesAreHeldAsHashes(t *testing.T) {
	reg := fanout.NewRegistry()
	long := strings.Repeat("x", fanout.MaxName+1)
	s := keyed(long, long, "body")
	s.Scope, s.Owner, s.Channel = long, long, long
	r := begin(t, reg, s)
	r.Publish()
	as := fanout.Access{Scope: long, Owner: long}
	if found, err := reg.Find(r.ID(), as); found != r || err != nil {
		t.Fatalf("by id: %p %v", found, err)
	}
	if got := reg.FindKey(long); len(got) != 1 || got[0] != r {
		t.Fatalf("by key: %v", got)
	}
	if got, found, err := reg.Begin(fanout.NewID(), s); got != r || !found || err != nil {
		t.Fatalf("by call: %v %v", found, err)
	}
	if got := reg.Current(long, as); got != r {
		t.Fatal("not found by channel")
	}
	for _, name := range []string{r.Scope, r.Owner, r.Channel, r.Call.Key, r.Call.Request} {
		if len(name) > fanout.MaxName || name != fanout.Bounded(long) {
			t.Fatalf("held as %q", name)
		}
	}
	// the hash is no second name of the same
	if _, err := reg.Find(r.ID(), fanout.Access{Scope: r.Scope, Owner: r.Owner}); !errors.Is(err, fanout.ErrUnknown) {
		t.Fatalf("by the hash: %v, want ErrUnknown", err)
	}
	if got := reg.Current(r.Channel, as); got != nil {
		t.Fatal("the channel is found by the hash of its name")
	}
	r.End(done)
	if name := strings.Repeat("y", fanout.MaxName); fanout.Bounded(name) != name {
		t.Fatal("a name that is not too long is hashed")
	}
}

// Tombstones alone must not fill the memory, and neither must channels that
// are not in use.
func TestWhatIsLeftOfManyResponsesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		reg := fanout.NewRegistry()
		reg.Limit(limit)
		for i := range 20_000 {
			s := spec()
			s.Channel = fmt.Sprint(i)
			r := begin(t, reg, s)
			r.Publish()
			add(t, r, "x")
			r.End(done)
		}
		got := reg.Holdings()
		if got.Total > limit || got.Tombstones < 100 || got.Kept < 100 {
			t.Fatalf("%+v", got)
		}
		wantAccount(t, reg)
		after(3 * keep)
		wantNothing(t, reg)
	})
}

// keptBytes is what 1,000 tokens of 5 bytes take as a kept response, measured
// on the heap.
func keptBytes(tb testing.TB, responses int) int {
	tb.Helper()
	reg := fanout.NewRegistry()
	all := make([]*fanout.Response, responses)
	before := heap()
	for i := range all {
		all[i] = begin(tb, reg, spec())
		for range 1000 {
			add(tb, all[i], "hello")
		}
		all[i].End(done)
	}
	after := heap()
	for _, r := range all {
		r.Discard(failed)
	}
	return (after - before) / responses
}

func TestALogIsCompactedAtItsEnd(t *testing.T) {
	r := begin(t, fanout.NewRegistry(), spec())
	for range 1000 {
		add(t, r, "hello")
	}
	before := r.Size()
	r.End(done)
	if want := 1000*6 + 16*fanout.MarkSize + fanout.RunSize; r.Size() != want || before <= want {
		t.Fatalf("%d bytes, %d before the end, want %d", r.Size(), before, want)
	}
	if got, last := rest(follow(t, r, 998).Read(), true); got != "hellohello" || last != 1001 {
		t.Fatalf("%q to %d", got, last)
	}
}

func TestAKeptResponseIsSmall(t *testing.T) {
	if got := keptBytes(t, 200); got > 8<<10 {
		t.Fatalf("1,000 tokens of 5 bytes take %d bytes", got)
	}
}
