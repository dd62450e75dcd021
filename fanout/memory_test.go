package fanout_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// sized returns a response whose log has one event of some bytes.
func sized(tb testing.TB, reg *fanout.Registry, bytes int) *fanout.Response {
	tb.Helper()
	r := begin(tb, reg, spec())
	add(tb, r, strings.Repeat("x", bytes))
	return r
}

func TestTheOldestEndExpiresFirstWhenMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		reg.Limit(10 << 10)
		a, b, c := sized(t, reg, 3<<10), sized(t, reg, 3<<10), sized(t, reg, 3<<10)
		b.End(done)
		a.End(done) // the first to begin, the last to end
		for _, r := range []*fanout.Response{a, b, c} {
			wantFind(t, reg, r, nil)
		}
		add(t, c, strings.Repeat("y", 2<<10))
		wantFind(t, reg, b, fanout.ErrExpired)
		wantFind(t, reg, a, nil)
		add(t, c, strings.Repeat("z", 20<<10)) // alone too large, but it runs
		wantFind(t, reg, a, fanout.ErrExpired)
		wantFind(t, reg, c, nil)
		c.End(done)
		wantFind(t, reg, c, fanout.ErrExpired)
		if got := reg.Holdings(); got.Total != 0 || got.Responses != 3 {
			t.Fatalf("%+v", got)
		}
		after(keep) // they are remembered as if their time was over
		wantNothing(t, reg)
	})
}

func TestALowerLimitMakesRoomAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		a, b := sized(t, reg, 3<<10), sized(t, reg, 3<<10)
		a.End(done)
		b.End(done)
		reg.Limit(8 << 10)
		wantFind(t, reg, a, nil)
		reg.Limit(5 << 10)
		wantFind(t, reg, a, fanout.ErrExpired)
		wantFind(t, reg, b, nil)
		reg.Limit(0)
		sized(t, reg, 1<<20)
		wantFind(t, reg, b, nil)
	})
}

func TestAReaderOfAnEvictedResponseKnowsThatItMissedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		reg.Limit(10 << 10)
		r := begin(t, reg, spec())
		c := follow(t, r, 0)
		add(t, r, "a", "b", "c")
		batch := c.Read()
		batch.Next(0)
		r.End(done)
		sized(t, reg, 20<<10)
		wantFind(t, reg, r, fanout.ErrExpired)
		if got, last := rest(batch, true); got != "bc" || last != 3 {
			t.Fatalf("what the reader held is %q to %d", got, last)
		}
		c.Advance(1)
		late := c.Read()
		index, ev, ok := late.Next(0)
		if late.Skipped != 2 || !ok || index != 4 || ev.Result != done.Result {
			t.Fatalf("%d skipped, then %d %+v", late.Skipped, index, ev)
		}
		if _, err := r.Follow(4); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("%v, want ErrExpired", err)
		}
		r.Leave()
		after(keep)
		wantFind(t, reg, r, fanout.ErrUnknown)
	})
}

func TestAnOverdueResponseCanBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		reg.Limit(10 << 10)
		r := sized(t, reg, 3<<10)
		follow(t, r, 0)
		r.End(done)
		after(keep)
		big := sized(t, reg, 20<<10)
		if size := r.Size(); size != 0 {
			t.Fatalf("%d bytes", size)
		}
		after(keep / 2)
		r.Leave()
		after(keep / 2)
		wantFind(t, reg, r, fanout.ErrUnknown)
		big.Discard(failed)
		wantNothing(t, reg)
	})
}

func TestTheTotalIsThatOfAllLogs(t *testing.T) {
	reg := fanout.NewRegistry()
	reg.Limit(1 << 30)
	var all []*fanout.Response
	for i := range 50 {
		r := begin(t, reg, spec())
		for range 10 * i {
			add(t, r, "hello")
		}
		if i%3 == 0 {
			r.End(done)
		}
		all = append(all, r)
	}
	for len(all) > 0 {
		sum := 0
		for _, r := range all {
			sum += r.Size()
		}
		if got := reg.Holdings().Total; got != sum {
			t.Fatalf("%d responses have %d bytes, the total is %d", len(all), sum, got)
		}
		all[0].Discard(failed)
		add(t, all[0], "too late")
		all = all[1:]
	}
	wantNothing(t, reg)
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
