package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// A log of A's and its copy on B's say the same from every index, while they grow
// and after the end.
func TestStreamAtEveryIndex(t *testing.T) {
	play(t, func(s *scene) {
		local, remote := fanout.NewStream(s.spec.ID, 0), fanout.NewStream(s.spec.ID, 0)
		s.spec.ID = fanout.NewID()
		begun, err := s.a.Begin(s.Context(), s.spec)
		if err != nil {
			s.Fatal(err)
		}
		w := s.a.Write(s.spec, begun.Ref, store.LogOf(local), storetest.NewOwner())
		sink := store.SinkOf(remote, func(err error) { s.Error(err) })
		if _, _, err := s.b.Follow(s.Context(), s.spec.ID, s.spec.Access, sink); err != nil {
			s.Fatal(err)
		}
		for _, ev := range storetest.Sample(6, 100) {
			if ev.Kind.IsTerminal() {
				local.End(&ev)
				w.Ended()
			} else {
				if err := local.Append([]event.Event{ev}); err != nil {
					s.Fatal(err)
				}
				w.Appended(1, len(ev.Text))
			}
			time.Sleep(10 * time.Millisecond)
			if index, terminal := local.Head(); index%20 == 0 || terminal != nil {
				synctest.Wait()
				sameFromEveryIndex(s.T, local, remote)
			}
		}
		if index, terminal := remote.Head(); index != 101 || terminal == nil {
			s.Errorf("the copy has %d events", index)
		}
	})
}

func sameFromEveryIndex(t *testing.T, local, remote *fanout.Stream) {
	t.Helper()
	head, _ := remote.Head()
	for index := range head {
		a := marshal(t, store.LogOf(local).Since(nil, index, 1<<30)[:head-index])
		if b := marshal(t, store.LogOf(remote).Since(nil, index, 1<<30)); string(a) != string(b) {
			t.Fatalf("after %d of %d:\n%s\nnot\n%s", index, head, b, a)
		}
	}
}

// A copy that grows too large for this replica goes no further, and says so.
func TestStreamTooLarge(t *testing.T) {
	play(t, func(s *scene) {
		remote := fanout.NewStream(s.spec.ID, 1000)
		var lost error
		sink := store.SinkOf(remote, func(err error) { lost = err })
		if _, _, err := s.b.Follow(s.Context(), s.spec.ID, s.spec.Access, sink); err != nil {
			s.Fatal(err)
		}
		for range 100 {
			s.say("a longer piece of text")
			time.Sleep(50 * time.Millisecond)
		}
		if !errors.Is(lost, fanout.ErrTooLarge) {
			s.Errorf("lost: %v", lost)
		}
	})
}

func TestStreamInPieces(t *testing.T) {
	t.Parallel()
	stream := fanout.NewStream(fanout.NewID(), 0)
	if err := stream.Append(storetest.Sample(1, 100)[:100]); err != nil {
		t.Fatal(err)
	}
	log := store.LogOf(stream)
	got := 0
	for got < 100 {
		events := log.Since(nil, got, 30)
		size := 0
		for i := range events {
			size += len(events[i].Text)
		}
		if len(events) == 0 || (size > 30 && len(events) > 1) {
			t.Fatalf("after %d: %d events of %d bytes", got, len(events), size)
		}
		got += len(events)
	}
	if events := log.Since(nil, 101, 30); len(events) > 0 {
		t.Errorf("beyond the end: %d events", len(events))
	}
}
