package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Sample returns so many output events of all kinds, the same ones for the same
// seed, and then a terminal event.
func Sample(seed uint64, outputs int) []event.Event {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	words := []string{"a", " token", `\"`, "ü", "世界", `\n`, " a rather long piece of text"}
	kinds := []event.Kind{event.Text, event.Text, event.Text, event.Reasoning, event.Refusal, event.ToolCall}
	var events []event.Event
	kind, call := event.Text, 0
	for len(events) < outputs {
		ev := event.Event{Kind: kind, Text: []byte(words[r.IntN(len(words))])}
		if r.IntN(10) == 0 {
			kind = kinds[r.IntN(len(kinds))]
			ev.Choice = r.IntN(2)
		}
		if ev.Kind == event.ToolCall {
			ev.Tool.Index = call
			if r.IntN(3) == 0 {
				call++
				ev.Text = nil
				ev.Tool = event.Tool{Index: call, ID: fmt.Sprintf("call_%d", call), Name: "look_up"}
			}
		}
		events = append(events, ev)
	}
	if seed%2 == 0 {
		return append(events, event.Event{Kind: event.Failed, Err: &event.Error{
			Code: event.CodeUpstreamError, Status: 502, Message: "no", Upstream: []byte(`{"a":1}`),
		}})
	}
	return append(events, event.Event{Kind: event.Done, Result: &event.Result{
		Finish: event.FinishStop, ProviderFinish: "end_turn", Usage: &event.TokenUsage{Input: -1, Output: 3},
	}})
}

func testReadAtEveryIndex(s suite) {
	events := Sample(3, 150)
	spec := s.spec()
	ref := s.begin(spec)
	outputs := events[:150]
	for first := 1; first <= len(outputs); {
		n := min(1+first%7, len(outputs)-first+1)
		if _, err := s.Append(s.t.Context(), ref, s.batch(first, outputs[first-1:first-1+n]...)); err != nil {
			s.t.Fatal(err)
		}
		first += n
	}
	s.readEveryIndex(spec.ID, outputs)
	final := store.Final{Batch: s.batch(151, events[150]), Status: fanout.Completed, Compact: s.batch(1, events...).Data}
	if _, err := s.Finish(s.t.Context(), ref, final); err != nil {
		s.t.Fatal(err)
	}
	s.readEveryIndex(spec.ID, events)
}

// readEveryIndex reads a log that fits a page from every place.
func (s suite) readEveryIndex(id string, want []event.Event) {
	s.t.Helper()
	for after := range len(want) + 1 {
		page, err := s.Read(s.t.Context(), id, after)
		if err != nil || page.Last != len(want) {
			s.t.Fatalf("Read after %d: up to %d, %v", after, page.Last, err)
		}
		index := after
		for _, data := range page.Batches {
			first, events, err := store.Decode(data)
			if err != nil {
				s.t.Fatal(err)
			}
			for i := range events {
				if first+i <= after {
					continue
				}
				if got, expected := describe(&events[i]), describe(&want[index]); got != expected || first+i != index+1 {
					s.t.Fatalf("after %d: event %d is %s, want event %d, %s", after, first+i, got, index+1, expected)
				}
				index++
			}
		}
		if index != len(want) {
			s.t.Fatalf("after %d: up to %d, want %d", after, index, len(want))
		}
	}
}

// testFollow copies responses through two replicas, with followers that come at
// the beginning, in the middle and after the end.
func testFollow(s suite) {
	producer, reader := store.Join(s, nil), store.Join(s, nil)
	defer func() {
		if err := producer.Close(s.t.Context()); err != nil {
			s.t.Error(err)
		}
		if err := reader.Close(s.t.Context()); err != nil {
			s.t.Error(err)
		}
	}()
	spec := s.spec()
	events := Sample(5, 300)
	log := NewLog()
	begun, err := producer.Begin(s.t.Context(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	writer := producer.Write(spec, begun.Ref, log, NewOwner())
	var copies []*Log
	for i, ev := range events {
		if i%50 == 0 {
			copies = append(copies, s.follow(reader, spec))
		}
		log.Add(ev)
		if ev.Kind.IsTerminal() {
			writer.Ended()
		} else {
			writer.Appended(1, len(ev.Text))
		}
		if i%10 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err := writer.Wait(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	copies = append(copies, s.follow(reader, spec))
	for _, copied := range copies {
		s.whole(copied, log)
	}
}

func (s suite) follow(r *store.Replica, spec *store.Spec) *Log {
	copied := NewLog()
	if _, _, err := r.Follow(s.t.Context(), spec.ID, spec.Access, copied); err != nil {
		s.t.Error(err)
	}
	return copied
}

// whole waits for the end of a copy and compares it.
func (s suite) whole(copied, log *Log) {
	s.t.Helper()
	select {
	case <-copied.Over():
	case <-time.After(wait):
		n, _ := copied.Len()
		s.t.Fatalf("no end after event %d", n)
	}
	n, _ := copied.Len()
	want, _ := log.Len()
	if diff := copied.Diff(log); diff != "" || n != want || copied.Err() != nil {
		s.t.Fatalf("%d events of %d, %v: %s", n, want, copied.Err(), diff)
	}
}

func testConcurrent(s suite) {
	producer, reader := store.Join(s, nil), store.Join(s, nil)
	var running sync.WaitGroup
	for i := range 30 {
		running.Go(func() {
			spec := s.spec()
			spec.Channel = "shared"
			begun, err := producer.Begin(s.t.Context(), spec)
			if err != nil {
				s.t.Error(err)
				return
			}
			log := NewLog()
			writer := producer.Write(spec, begun.Ref, log, NewOwner())
			writer.Announce()
			copied := s.follow(reader, spec)
			for _, ev := range Sample(uint64(i), 100) { //nolint:gosec // small
				log.Add(ev)
				if ev.Kind.IsTerminal() {
					writer.Ended()
				} else {
					writer.Appended(1, len(ev.Text))
				}
			}
			select {
			case <-copied.Over():
				if diff := copied.Diff(log); diff != "" || copied.Err() != nil {
					s.t.Errorf("%v: %s", copied.Err(), diff)
				}
			case <-time.After(wait):
				s.t.Error("no end")
			}
		})
	}
	running.Wait()
	for _, r := range []*store.Replica{producer, reader} {
		if err := r.Close(s.t.Context()); err != nil {
			s.t.Error(err)
		}
	}
}
