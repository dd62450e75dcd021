package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// model is a log as simple as can be: a list of events.
type model struct {
	events []event.Event
	end    *event.Event
}

// at returns the event with an index.
func (m *model) at(index int) *event.Event {
	if index == len(m.events)+1 {
		return m.end
	}
	return &m.events[index-1]
}

func (m *model) head() int {
	if m.end != nil {
		return len(m.events) + 1
	}
	return len(m.events)
}

// continues reports whether the event with an index can be part of a frame
// that has the one before it.
func (m *model) continues(index int) bool {
	a, b := m.at(index-1), m.at(index)
	return a.Kind == b.Kind && a.Choice == b.Choice && a.Tool.Index == b.Tool.Index &&
		b.Tool.ID == "" && b.Tool.Name == "" && !b.Kind.IsTerminal()
}

// check compares one frame, which follows the event before, with the model.
func (m *model) check(before, index int, ev event.Event, merge, to int) error {
	if index <= before || index > to || (merge == 0 && index != before+1) {
		return fmt.Errorf("index %d after %d, the end is %d", index, before, to)
	}
	first := m.at(before + 1)
	if first.Kind.IsTerminal() {
		if index != before+1 || ev.Kind != first.Kind || ev.Result != first.Result || ev.Err != first.Err {
			return fmt.Errorf("event %d is %+v, want the terminal %+v", index, ev, first)
		}
		return nil
	}
	var want []byte
	for i := before + 1; i <= index; i++ {
		if i > before+1 && !m.continues(i) {
			return fmt.Errorf("event %d is merged into the one before", i)
		}
		want = append(want, m.at(i).Text...)
	}
	room := max(merge, len(first.Text)) // one event of any size
	if merge > 0 && len(want) > room {
		return fmt.Errorf("%d bytes to %d, %d are allowed", len(want), index, merge)
	}
	if merge > 0 && index < to && m.continues(index+1) && len(want)+len(m.at(index+1).Text) <= room {
		return fmt.Errorf("event %d is not merged with the next", index)
	}
	if string(ev.Text) != string(want) || cap(ev.Text) != len(ev.Text) {
		return fmt.Errorf("text of %d to %d is %q with room for %d, want %q", before+1, index, ev.Text, cap(ev.Text), want)
	}
	if ev.Kind != first.Kind || ev.Choice != first.Choice || ev.Tool != first.Tool {
		return fmt.Errorf("event %d is %+v, want %+v", index, ev, first)
	}
	return nil
}

// randomEvents returns what one read from upstream may hold: long runs and
// short ones, tool calls that open, go on and are empty.
func randomEvents(rng *rand.Rand, calls *int) []event.Event {
	events := make([]event.Event, 0, 8)
	kind := event.Kind(1 + rng.IntN(4))
	choice := rng.IntN(2)
	for range rng.IntN(8) {
		if rng.IntN(4) == 0 {
			kind, choice = event.Kind(1+rng.IntN(4)), rng.IntN(2)
		}
		ev := event.Event{Kind: kind, Choice: choice, Text: fmt.Appendf(nil, "<%d>", rng.IntN(1000))}
		if rng.IntN(50) == 0 {
			ev.Text = append(ev.Text, make([]byte, 200)...)
		}
		if kind == event.ToolCall {
			ev.Tool.Index = rng.IntN(*calls + 1)
			if rng.IntN(3) == 0 {
				*calls++
				ev.Tool = event.Tool{Index: *calls, Name: "get"}
				ev.Text = ev.Text[:0]
			}
			if rng.IntN(6) == 0 {
				ev.Tool.Name = "put" // without an id, as some providers open a call
			}
			if rng.IntN(3) == 0 {
				ev.Tool.ID = fmt.Sprintf("call_%d", *calls)
			}
		}
		events = append(events, ev)
	}
	return events
}

// someBound returns a bound that merges nothing, little, much or all.
func someBound(rng *rand.Rand) int {
	return [...]int{0, 1, 3, 20, 300, whole}[rng.IntN(6)]
}

// reading is a batch that a reader has not read to its end.
type reading struct {
	batch    fanout.Batch
	last, to int
	text     int // bytes left
}

func (m *model) reading(batch fanout.Batch, after int) *reading {
	r := &reading{batch: batch, last: after, to: m.head()}
	for i := after + 1; i <= r.to; i++ {
		r.text += len(m.at(i).Text)
	}
	return r
}

// step reads one frame.
func (r *reading) step(t *testing.T, m *model, merge int) (more bool) {
	t.Helper()
	if r.batch.Len() != r.to-r.last || r.batch.Bytes() != r.text {
		t.Fatalf("%d events and %d bytes after %d, want %d and %d",
			r.batch.Len(), r.batch.Bytes(), r.last, r.to-r.last, r.text)
	}
	index, ev, ok := r.batch.Next(merge)
	if !ok {
		if r.last != r.to {
			t.Fatalf("the batch ends at %d, want %d", r.last, r.to)
		}
		return false
	}
	if err := m.check(r.last, index, ev, merge, r.to); err != nil {
		t.Fatal(err)
	}
	r.last = index
	r.text -= len(ev.Text)
	return true
}

// A batch is read later, piece by piece, while the log goes on and is
// compacted: none of that may change what the batch holds.
func TestReadersHaveWhatTheModelHas(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			s := fanout.NewStream(fanout.NewID(), 0)
			m := new(model)
			calls := 0
			var readings []*reading
			for range 150 {
				switch op := rng.IntN(6); {
				case op < 3 && m.end == nil:
					events := randomEvents(rng, &calls)
					m.events = append(m.events, events...)
					if err := s.Append(events); err != nil {
						t.Fatal(err)
					}
				case op < 5:
					c := open(t, s, rng.IntN(m.head()+1))
					readings = append(readings, m.reading(c.Read(), c.Index()))
				case len(readings) > 0:
					i := rng.IntN(len(readings))
					for range rng.IntN(10) {
						readings[i].step(t, m, someBound(rng))
					}
				}
				if rng.IntN(100) == 0 && m.end == nil {
					m.end = done
					s.End(done)
				}
			}
			for _, r := range readings {
				for r.step(t, m, someBound(rng)) {
				}
			}
		})
	}
}

// One reader whose log is recycled behind it has everything once.
func TestARecycledLogGoesOnWithoutGaps(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := fanout.NewStream(fanout.NewID(), 0)
		c := open(t, s, 0)
		m := new(model)
		calls := 0
		for range 100 {
			events := randomEvents(rng, &calls)
			m.events = append(m.events, events...)
			if err := s.Append(events); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(3) == 0 {
				continue // the reader is late
			}
			batch := c.Read()
			if batch.Skipped != 0 {
				t.Fatalf("%d events skipped", batch.Skipped)
			}
			r := m.reading(batch, c.Index())
			for r.step(t, m, 0) {
				c.Advance(r.last)
			}
			s.Recycle()
			if events, text := s.Held(); events != 0 || text != 0 {
				t.Fatalf("%d events and %d bytes left", events, text)
			}
		}
		s.End(done)
		m.end = done
		r := m.reading(c.Read(), c.Index())
		for r.step(t, m, whole) {
			c.Advance(r.last)
		}
		if !c.Ended() || c.Index() != m.head() {
			t.Fatalf("at %d, ended: %v, want the end at %d", c.Index(), c.Ended(), m.head())
		}
	}
}
