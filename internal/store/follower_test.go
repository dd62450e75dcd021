package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// lossy is a Store whose messages are lost and repeated.
type lossy struct {
	store.Store
	random *rand.Rand

	mu      sync.Mutex
	deliver []func(store.Message)
}

func (l *lossy) Subscribe(ctx context.Context, t store.Topic, deliver func(store.Message)) (store.Subscription, error) {
	l.mu.Lock()
	l.deliver = append(l.deliver, deliver)
	l.mu.Unlock()
	last := store.Message{Reset: true}
	return l.Store.Subscribe(ctx, t, func(m store.Message) {
		switch l.random.IntN(4) {
		case 0: // lost
		case 1:
			deliver(m)
			deliver(last)
		default:
			deliver(m)
		}
		last = m
		last.Data = slices.Clone(m.Data)
	})
}

// reset tells all subscribers that messages may have been lost.
func (l *lossy) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, deliver := range l.deliver {
		deliver(store.Message{Reset: true})
	}
}

func TestFollowLossy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(s *scene) {
				links := &lossy{Store: s.db, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a test
				b := store.Join(links, nil)
				var copies []*storetest.Log
				for i, ev := range storetest.Sample(seed, 200) {
					if i%40 == 0 {
						copied := storetest.NewLog()
						if _, _, err := b.Follow(s.Context(), s.spec.ID, s.spec.Access, copied); err != nil {
							s.Fatal(err)
						}
						copies = append(copies, copied)
					}
					s.log.Add(ev)
					if ev.Kind.IsTerminal() {
						s.writer.Ended()
					} else {
						s.writer.Appended(1, len(ev.Text))
					}
					time.Sleep(time.Duration(i*7%60) * time.Millisecond)
					synctest.Wait()
				}
				links.reset()
				synctest.Wait()
				for _, copied := range copies {
					s.same(copied)
				}
				if err := b.Close(s.Context()); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// A hole shows with the next message, and what comes while it is read is kept.
func TestHole(t *testing.T) {
	play(t, func(s *scene) {
		var deliver func(store.Message)
		lost := false
		links := &tapped{Store: s.toB, tap: func(pass func(store.Message)) func(store.Message) {
			deliver = pass
			return func(m store.Message) {
				if !lost {
					deliver(m)
				}
			}
		}}
		b := store.Join(links, nil)
		copied := storetest.NewLog()
		if _, _, err := b.Follow(s.Context(), s.spec.ID, s.spec.Access, copied); err != nil {
			s.Fatal(err)
		}
		say := func(text string) {
			s.say(text)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		say("a")
		lost = true
		say("b")
		lost = false
		say("c")
		s.same(copied)
		lost = true
		say("d")
		lost = false
		hold := make(chan struct{})
		s.toB.mu.Lock()
		s.toB.hold = hold
		s.toB.mu.Unlock()
		say("e") // lets it read, which takes its time
		say("f")
		s.end()
		s.toB.mu.Lock()
		s.toB.hold = nil
		s.toB.mu.Unlock()
		close(hold)
		synctest.Wait()
		s.same(copied)
		if err := b.Close(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

// tapped is a Store with something between a topic and its subscribers.
type tapped struct {
	store.Store
	tap func(deliver func(store.Message)) func(store.Message)
}

func (t *tapped) Subscribe(ctx context.Context, topic store.Topic, deliver func(store.Message)) (store.Subscription, error) {
	if topic.Kind == store.ResponseTopic {
		deliver = t.tap(deliver)
	}
	return t.Store.Subscribe(ctx, topic, deliver)
}

// A follower reads again until the store answers.
func TestFollowerAway(t *testing.T) {
	play(t, func(s *scene) {
		s.say("a")
		s.toB.set(true, false)
		copied := s.follow()
		s.say("b")
		time.Sleep(5 * time.Second)
		if n, _ := copied.Len(); n > 0 {
			s.Errorf("%d events", n)
		}
		s.toB.set(false, false)
		time.Sleep(2 * time.Second)
		s.same(copied)
		s.end()
		s.complete()
		s.same(copied)
	})
}

func TestFollowerIsToldWhatWentWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(s *scene)
		want error
	}{
		"discarded": {func(s *scene) {
			if err := s.writer.Discard(s.Context()); err != nil {
				s.Error(err)
			}
		}, store.ErrUnknown},
		"corrupt": {func(s *scene) {
			batch := store.Batch{First: 2, Last: 2, Data: []byte("?")}
			if _, err := s.db.Append(s.Context(), store.Ref{ID: s.spec.ID, Fence: 1}, batch); err != nil {
				s.Error(err)
			}
		}, store.ErrCorrupt},
		"closed": {func(s *scene) {
			if err := s.b.Close(s.Context()); err != nil {
				s.Error(err)
			}
		}, store.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.say("a")
				copied := s.follow()
				s.same(copied)
				test.do(s)
				synctest.Wait()
				if !errors.Is(copied.Err(), test.want) {
					s.Errorf("%v, want %v", copied.Err(), test.want)
				}
			})
		})
	}
}

// refusing is a Sink that takes no more than one event.
type refusing struct{ *storetest.Log }

var errFull = errors.New("full")

func (r refusing) Append(events []event.Event) error {
	if n, _ := r.Len(); n > 0 {
		return errFull
	}
	return r.Log.Append(events)
}

func TestFollowerStopsWhereItsSinkRefuses(t *testing.T) {
	play(t, func(s *scene) {
		sink := refusing{storetest.NewLog()}
		if _, _, err := s.b.Follow(s.Context(), s.spec.ID, s.spec.Access, sink); err != nil {
			s.Fatal(err)
		}
		s.say("a")
		time.Sleep(time.Second)
		s.say("b")
		time.Sleep(time.Second)
		s.say("c")
		s.end()
		if n, _ := sink.Len(); n != 1 || sink.Terminal() != nil || sink.Err() != nil {
			s.Errorf("%d events, %v", n, sink.Err())
		}
	})
}
