package redis_test

import (
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// response is one that runs on A by hand.
type response struct {
	spec   *store.Spec
	log    *storetest.Log
	owner  *storetest.Owner
	writer *store.Writer
}

func (s *scene) start() *response {
	s.Helper()
	r := &response{
		spec: &store.Spec{
			ID: fanout.NewID(), Access: fanout.Access{Scope: "h", Owner: "o"}, Dialect: "text",
			Channel: "chat", Started: time.Now(), Keep: time.Minute,
		},
		log: storetest.NewLog(), owner: storetest.NewOwner(),
	}
	begun, err := s.a.Begin(s.Context(), r.spec)
	if err != nil {
		s.Fatal(err)
	}
	r.writer = s.a.Write(r.spec, begun.Ref, r.log, r.owner)
	r.writer.Announce()
	return r
}

func (r *response) say(text string) {
	r.log.Add(event.Event{Kind: event.Text, Text: []byte(text)})
	r.writer.Appended(1, len(text))
}

func (r *response) end(finish event.FinishReason) {
	r.log.Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: finish}})
	r.writer.Ended()
}

// followed returns a copy on B that has had the first event.
func (s *scene) followed(r *response) *storetest.Log {
	s.Helper()
	copied := storetest.NewLog()
	if _, _, err := s.b.Follow(s.Context(), r.spec.ID, r.spec.Access, copied); err != nil {
		s.Fatal(err)
	}
	s.await(copied, 1)
	return copied
}

// await waits until a copy has so many events.
func (s *scene) await(copied *storetest.Log, events int) {
	s.Helper()
	timeout := time.After(hang)
	for {
		n, grown := copied.Len()
		if n >= events {
			return
		}
		select {
		case <-grown:
		case <-timeout:
			s.Fatalf("hangs at event %d", n)
		}
	}
}

// The replica that produces dies, and comes back after its lease: its followers
// are told, and it is not believed any more. That the former takes less than 10 s
// is tested in virtual time.
func TestOwnerDies(t *testing.T) {
	t.Parallel()
	s := newScene(t, patient)
	speaking, silent := s.start(), s.start()
	speaking.say("Hi")
	silent.say("Hi")
	var copies []*storetest.Log
	for range 3 {
		copies = append(copies, s.followed(speaking), s.followed(silent))
	}
	time.Sleep(s.lease()) // a replica trusts its own link after that
	s.toA.Stall(true)
	died := time.Now()
	for _, copied := range copies {
		s.await(copied, 2)
		if end := copied.Terminal(); end == nil || end.Kind != event.Failed || end.Err.Code != event.CodeInterrupted {
			t.Errorf("the last event is %+v", end)
		}
	}
	t.Logf("interrupted after %v", time.Since(died))
	speaking.say(" there")
	s.toA.Stall(false)
	for _, r := range []*response{speaking, silent} {
		select {
		case <-r.owner.Fenced:
		case <-time.After(hang):
			t.Fatal("the producer that came back was not refused")
		}
		meta, err := s.b.Find(t.Context(), r.spec.ID, r.spec.Access)
		if err != nil || meta.Status != fanout.Interrupted || meta.Last != 2 {
			t.Errorf("Find: %+v, %v", meta, err)
		}
	}
	page, err := s.b.Channel(t.Context(), store.Channel{Access: speaking.spec.Access, Name: "chat"}, "", 100)
	if err != nil || len(page.Running) != 0 {
		t.Errorf("on the channel runs %q, %v", page.Running, err)
	}
}

func (s *scene) lease() time.Duration { return 7 * time.Second }

// A replica that goes in good order gives up its lease: its followers need not
// wait for its end.
func TestOwnerLeaves(t *testing.T) {
	t.Parallel()
	s := newScene(t, patient)
	r := s.start()
	r.say("Hi")
	copied := s.followed(r)
	time.Sleep(s.lease())
	if err := s.a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	s.await(copied, 2)
	t.Logf("interrupted after %v", time.Since(left))
}

func TestCancelFromAnotherReplica(t *testing.T) {
	t.Parallel()
	s := newScene(t, patient)
	r := s.start()
	r.say("Hi")
	copied := s.followed(r)
	s.running.Go(func() {
		<-r.owner.Cancelled
		r.end(event.FinishCancelled)
	})
	asked := time.Now()
	meta, err := s.b.Cancel(t.Context(), r.spec.ID, r.spec.Access, hang)
	if err != nil || meta.Status != fanout.Cancelled {
		t.Fatalf("Cancel: %+v, %v", meta, err)
	}
	t.Logf("cancelled after %v", time.Since(asked))
	s.await(copied, 2)
	s.running.Wait()
	meta, err = s.b.Cancel(t.Context(), r.spec.ID, r.spec.Access, hang) // again
	if err != nil || meta.Status != fanout.Cancelled {
		t.Errorf("Cancel: %+v, %v", meta, err)
	}
}

// While the owner's link is down, the answer is that it goes on, and the wish
// comes with the next append.
func TestCancelWhileTheOwnerIsAway(t *testing.T) {
	t.Parallel()
	s := newScene(t, patient)
	r := s.start()
	r.say("Hi")
	s.followed(r)
	s.toA.Refuse(true)
	meta, err := s.b.Cancel(t.Context(), r.spec.ID, r.spec.Access, 100*time.Millisecond)
	if err != nil || meta.Status != fanout.InProgress {
		t.Fatalf("Cancel: %+v, %v", meta, err)
	}
	s.toA.Refuse(false)
	r.say(" there")
	select {
	case <-r.owner.Cancelled:
	case <-time.After(hang):
		t.Fatal("the wish was lost")
	}
}
