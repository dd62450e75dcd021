package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestAWindowKeepsTheLastEvents(t *testing.T) {
	for _, n := range []int{1, 2, 64, 1000} {
		s := fanout.NewStream(fanout.NewID(), 0)
		s.Window(n)
		late := open(t, s, 0)
		for i := 1; i <= 5*n+3; i++ {
			add(t, s, fmt.Sprintf("%d,", i))
			events, _ := s.Held()
			if least := min(i, n+1); events < least || events > 2*n+1 {
				t.Fatalf("window %d: %d events kept of %d", n, events, i)
			}
			batch := late.Read()
			if batch.Skipped != i-events {
				t.Fatalf("window %d: %d skipped, want %d", n, batch.Skipped, i-events)
			}
			index, ev, _ := batch.Next(0)
			if want := fmt.Sprintf("%d,", index); index != i-events+1 || string(ev.Text) != want {
				t.Fatalf("window %d: first is %q with index %d, want %q", n, ev.Text, index, want)
			}
		}
	}
}

func TestAWindowKeepsWhatTheNewestAppendBrought(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(4)
	c := open(t, s, 0)
	for round := range 20 {
		burst := make([]event.Event, 50)
		for i := range burst {
			burst[i] = text("x")
		}
		if err := s.Append(burst); err != nil {
			t.Fatal(err)
		}
		batch := c.Read()
		if batch.Skipped != 0 || batch.Len() != 50 {
			t.Fatalf("round %d: a reader at the head has %d events, %d skipped", round, batch.Len(), batch.Skipped)
		}
		c.Advance(c.Index() + 50)
	}
}

func TestAWindowBoundsText(t *testing.T) {
	const piece = 10 << 10
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(1000)
	for i := range 300 {
		add(t, s, strings.Repeat("x", piece))
		events, size := s.Held()
		if size > 2*fanout.WindowText+piece {
			t.Fatalf("%d bytes kept", size)
		}
		if least := min((i+1)*piece, fanout.WindowText-piece); size < least {
			t.Fatalf("%d bytes in %d events kept after %d appends, want at least %d", size, events, i+1, least)
		}
	}
}

func TestAWindowKeepsOneEventOfAnySize(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(64)
	c := open(t, s, 0)
	huge := strings.Repeat("x", 3*fanout.WindowText)
	add(t, s, "a", huge)
	if got, _ := rest(c.Read(), true); got != "a"+huge {
		t.Fatalf("%d bytes, want all", len(got))
	}
	add(t, s, "b")
	batch := c.Read()
	if got, _ := rest(batch, true); got != huge+"b" || batch.Skipped != 1 {
		t.Fatalf("%d bytes, %d skipped, want the huge event and the next", len(got), batch.Skipped)
	}
	add(t, s, "c")
	batch = c.Read()
	if got, last := rest(batch, true); got != "bc" || batch.Skipped != 2 || last != 4 {
		t.Fatalf("%d bytes, %d skipped, want bc", len(got), batch.Skipped)
	}
}

func TestAWindowLeavesBatchesAlone(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := fanout.NewStream(fanout.NewID(), 0)
		s.Window(1 + rng.IntN(20))
		c := open(t, s, 0)
		m := new(model)
		calls := 0
		var readings []*reading
		for range 200 {
			events := randomEvents(rng, &calls)
			m.events = append(m.events, events...)
			if err := s.Append(events); err != nil {
				t.Fatal(err)
			}
			batch := c.Read()
			readings = append(readings, m.reading(batch, c.Index()+batch.Skipped))
			if i := rng.IntN(len(readings)); rng.IntN(2) == 0 {
				readings[i].step(t, m, someBound(rng))
				c.Advance(max(c.Index(), readings[i].last))
			}
		}
		for _, r := range readings {
			for r.step(t, m, someBound(rng)) {
			}
		}
	}
}

// 100 times as many events behind the same window must cost 100 times as much
// in all, and nothing of it stays.
func TestAWindowCostsAConstantTimePerEvent(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(64)
	events := []event.Event{text("hello")}
	perAppend := testing.AllocsPerRun(100_000, func() {
		if err := s.Append(events); err != nil {
			t.Fatal(err)
		}
	})
	if perAppend > 0.5 {
		t.Fatalf("%.2f allocations for each append", perAppend)
	}
	if size := s.Size(); size > 4<<10 {
		t.Fatalf("a window of 64 events of 5 bytes holds %d bytes", size)
	}
}

func TestACursorBeforeAWindowIsForgotten(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(2)
	add(t, s, "a", "b", "c", "d", "e", "f")
	if _, err := s.Open(0); !errors.Is(err, fanout.ErrForgotten) {
		t.Fatalf("open at 0: %v, want ErrForgotten", err)
	}
	events, _ := s.Held()
	c := open(t, s, 6-events)
	if got, last := rest(c.Read(), true); got != "abcdef"[6-events:] || last != 6 {
		t.Fatalf("%q to %d", got, last)
	}
}

func TestSkipLeavesTheTerminalEvent(t *testing.T) {
	for _, ended := range []bool{false, true} {
		s := fanout.NewStream(fanout.NewID(), 0)
		s.Window(1)
		c := open(t, s, 0)
		add(t, s, "a", "b", "c", "d", "e")
		if ended {
			s.End(done)
		}
		batch := c.Read()
		if batch.Skipped == 0 {
			t.Fatal("nothing was forgotten")
		}
		batch.Next(0)
		missed := batch.Skip()
		if want := 4; missed != want || batch.Bytes() != 0 || batch.Skipped != 0 {
			t.Fatalf("missed %d, want %d; %d bytes left", missed, want, batch.Bytes())
		}
		index, ev, ok := batch.Next(0)
		if ok != ended || (ended && (index != 6 || ev.Kind != event.Done)) {
			t.Fatalf("after the skip: %d %+v %v", index, ev, ok)
		}
		if batch.Len() != 0 {
			t.Fatalf("%d events left", batch.Len())
		}
	}
}
