package fanout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestTheTerminalEventHasTheNextIndex(t *testing.T) {
	for _, outputs := range []int{0, 1, 2} {
		s := fanout.NewStream(fanout.NewID(), 0)
		add(t, s, []string{"a", "b"}[:outputs]...)
		if index, terminal := s.Head(); index != outputs || terminal != nil {
			t.Fatalf("head of %d outputs: %d, %v", outputs, index, terminal)
		}
		c := open(t, s, outputs)
		if !s.End(done) {
			t.Fatal("the first End had no effect")
		}
		if index, terminal := s.Head(); index != outputs+1 || terminal != done {
			t.Fatalf("head after the end: %d, %v", index, terminal)
		}
		batch := c.Read()
		index, ev, ok := batch.Next(whole)
		if !ok || index != outputs+1 || ev.Result != done.Result {
			t.Fatalf("after %d outputs: %d %+v %v", outputs, index, ev, ok)
		}
		if _, _, ok := batch.Next(whole); ok {
			t.Fatal("something after the end")
		}
		if c.Ended() || c.Lag() != 1 {
			t.Fatalf("ended: %v with lag %d before the reader has had it", c.Ended(), c.Lag())
		}
		c.Advance(index)
		if batch := c.Read(); !c.Ended() || c.Lag() != 0 || batch.Len() != 0 || batch.Skipped != 0 {
			t.Fatalf("ended: %v, lag %d, %d to read", c.Ended(), c.Lag(), batch.Len())
		}
	}
}

func TestNothingComesAfterTheEnd(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 1)
	s.End(done)
	if s.End(failed) {
		t.Fatal("a second End had an effect")
	}
	if err := s.Append([]event.Event{text("too late and too large")}); err != nil {
		t.Fatal(err)
	}
	if index, terminal := s.Head(); index != 1 || terminal != done {
		t.Fatalf("%d, %v", index, terminal)
	}
}

func TestOpenTakesOnlyPlacesOfTheLog(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	for _, ended := range []bool{false, true} {
		head, _ := s.Head()
		for index, want := range map[int]error{
			-1: fanout.ErrBadCursor, 0: nil, head: nil, head + 1: fanout.ErrBadCursor, 1 << 30: fanout.ErrBadCursor,
		} {
			if _, err := s.Open(index); !errors.Is(err, want) {
				t.Errorf("ended: %v, open at %d of %d: %v, want %v", ended, index, head, err, want)
			}
		}
		add(t, s, "a", "b")
		s.End(done)
	}
}

func TestATextStartsAtAWholeEvent(t *testing.T) {
	pieces := []string{"日", "本語", "🙂", `\n`, "é"}
	s := fanout.NewStream(fanout.NewID(), 0)
	add(t, s, pieces...)
	for index := range pieces {
		for _, merge := range []bool{true, false} {
			if got, _ := rest(open(t, s, index).Read(), merge); got != strings.Join(pieces[index:], "") {
				t.Errorf("after %d: %q", index, got)
			}
		}
	}
}

func TestAppendCopiesTexts(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	ev := text("good")
	if err := s.Append([]event.Event{ev}); err != nil {
		t.Fatal(err)
	}
	copy(ev.Text, "evil")
	if got, _ := rest(open(t, s, 0).Read(), false); got != "good" {
		t.Fatalf("%q", got)
	}
}

func TestALogWithALimitTakesAllOfAnAppendOrNothing(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 1000)
	add(t, s, strings.Repeat("x", 500))
	err := s.Append([]event.Event{text("y"), text(strings.Repeat("z", 500))})
	if !errors.Is(err, fanout.ErrTooLarge) {
		t.Fatalf("%v, want ErrTooLarge", err)
	}
	if index, _ := s.Head(); index != 1 {
		t.Fatalf("%d events, want 1", index)
	}
	add(t, s, "y")
}

func TestALimitCountsWhatIsNotText(t *testing.T) {
	tests := map[string]func(i int) event.Event{
		"runs": func(i int) event.Event {
			return event.Event{Kind: event.Text, Choice: i % 2, Text: []byte("x")}
		},
		"names": func(i int) event.Event {
			return event.Event{Kind: event.ToolCall, Tool: event.Tool{Index: i, Name: strings.Repeat("n", 1000)}}
		},
		"empty fragments": func(int) event.Event {
			return event.Event{Kind: event.ToolCall}
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			const limit = 64 << 10
			s := fanout.NewStream(fanout.NewID(), limit)
			var err error
			for i := 0; err == nil && i < limit; i++ {
				err = s.Append([]event.Event{make(i)})
			}
			if !errors.Is(err, fanout.ErrTooLarge) {
				t.Fatalf("%v, want ErrTooLarge", err)
			}
			if size := s.Size(); size < limit/2 || size > 2*limit {
				t.Fatalf("the log ended with %d bytes, its limit is %d", size, limit)
			}
		})
	}
}

func TestEstimatesOfMemoryAreRight(t *testing.T) {
	if fanout.RunSize != fanout.RealRunSize || fanout.MarkSize != fanout.RealMarkSize {
		t.Fatalf("a run takes %d bytes and a mark %d, not %d and %d",
			fanout.RealRunSize, fanout.RealMarkSize, fanout.RunSize, fanout.MarkSize)
	}
}

func TestARecycledLogDoesNotHoldWhatItHadOnce(t *testing.T) {
	for name, ev := range map[string]event.Event{
		"text": text(strings.Repeat("x", 1<<20)),
		"name": {Kind: event.ToolCall, Tool: event.Tool{Name: strings.Repeat("x", 1<<20)}},
	} {
		s := fanout.NewStream(fanout.NewID(), 0)
		if err := s.Append([]event.Event{ev}); err != nil {
			t.Fatal(err)
		}
		s.Recycle()
		if size := s.Size(); size > fanout.RecycleLimit {
			t.Errorf("%s: %d bytes", name, size)
		}
	}
}

func TestACursorBehindARecycledLogHasSkipped(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(t, s, 0)
	add(t, s, "a", "b")
	s.Recycle()
	batch := c.Read()
	if batch.Skipped != 2 || batch.Len() != 0 {
		t.Fatalf("%d skipped, %d to read, want 2 and 0", batch.Skipped, batch.Len())
	}
	add(t, s, "c")
	batch = c.Read()
	index, ev, _ := batch.Next(0)
	if batch.Skipped != 2 || index != 3 || string(ev.Text) != "c" {
		t.Fatalf("%d skipped, then %d %q", batch.Skipped, index, ev.Text)
	}
	if _, err := s.Open(1); !errors.Is(err, fanout.ErrForgotten) {
		t.Fatalf("open at 1: %v, want ErrForgotten", err)
	}
}

func TestChangedIsReadyExactlyWhenThereIsSomethingToRead(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(t, s, 0)
	first := c.Changed()
	if isReady(first) {
		t.Fatal("ready on an empty log")
	}
	if c.Changed() != first {
		t.Fatal("another channel for the same wait")
	}
	if err := s.Append(nil); err != nil || isReady(first) {
		t.Fatal("an append of nothing woke the reader")
	}
	add(t, s, "a")
	if !isReady(first) || !isReady(c.Changed()) {
		t.Fatal("not woken by an append")
	}
	c.Advance(1)
	second := c.Changed()
	if isReady(second) {
		t.Fatal("ready when everything was had")
	}
	s.End(done)
	if !isReady(second) {
		t.Fatal("not woken by the end")
	}
	c.Advance(2)
	if isReady(c.Changed()) {
		t.Fatal("ready after the end was had")
	}
}

func TestTheNewestAppendIsNotALag(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(t, s, 0)
	lag := func(events, bytes int) {
		t.Helper()
		if batch := c.Read(); batch.Behind != events || batch.BehindBytes != bytes {
			t.Fatalf("%d events and %d bytes behind, want %d and %d", batch.Behind, batch.BehindBytes, events, bytes)
		}
	}
	lag(0, 0)
	burst := make([]event.Event, 100)
	for i := range burst {
		burst[i] = text("12345")
	}
	if err := s.Append(burst); err != nil {
		t.Fatal(err)
	}
	lag(0, 0)
	add(t, s, "1", "12")
	lag(101, 501)
	c.Advance(100)
	lag(1, 1)
	s.End(done)
	lag(1, 1)
	c.Advance(101)
	lag(0, 0)
	c.Advance(102)
	lag(0, 0)
	c.Advance(103)
	lag(0, 0)
}

func TestALagCountsWhatIsForgotten(t *testing.T) {
	s := fanout.NewStream(fanout.NewID(), 0)
	s.Window(1)
	c := open(t, s, 0)
	add(t, s, "a", "b", "c", "d", "e", "f")
	if batch := c.Read(); batch.Behind != 5 || batch.BehindBytes != batch.Bytes()-1 {
		t.Fatalf("%d events and %d bytes behind, %d skipped", batch.Behind, batch.BehindBytes, batch.Skipped)
	}
	s.Recycle()
	if batch := c.Read(); batch.Behind != 5 || batch.BehindBytes != 0 {
		t.Fatalf("%d events and %d bytes behind after all was forgotten", batch.Behind, batch.BehindBytes)
	}
}

// A frame of a client that catches up must fit the lines that readers take,
// and be cut between events, so that its index moves however slow the line is.
func TestMergedFramesAreBounded(t *testing.T) {
	const bound = 32 << 10
	s := fanout.NewStream(fanout.NewID(), 0)
	c := open(t, s, 0)
	escaped := strings.Repeat(`é\n`, 4) // counts as it is written, not as characters
	for range 10_000 {
		add(t, s, escaped)
	}
	add(t, s, strings.Repeat("x", bound+1), "y", strings.Repeat("z", bound), "")
	want := []int{}
	for n := bound / len(escaped); len(want)*n+n <= 10_000; {
		want = append(want, n*len(escaped))
	}
	want = append(want, 10_000*len(escaped)-len(want)*want[0], bound+1, 1, bound)
	var got []int
	batch := c.Read()
	for index, ev, ok := batch.Next(bound); ok; index, ev, ok = batch.Next(bound) {
		got = append(got, len(ev.Text))
		if index <= c.Index() {
			t.Fatalf("index %d after %d", index, c.Index())
		}
		c.Advance(index)
	}
	if !slices.Equal(got, want) || c.Lag() != 0 {
		t.Fatalf("frames of %v bytes, want %v; %d events are left", got, want, c.Lag())
	}
}
