package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// scene is a random conversation that can be played again: what happens on the
// channel, and when the client looks.
type scene struct {
	steps []func(c *conversation)
	looks map[int]bool      // the client reads after these steps
	texts map[string]string // of the responses, by name
}

// newScene interleaves several responses.
func newScene(rng *rand.Rand) *scene {
	const responses = 4
	sc := &scene{looks: make(map[int]bool), texts: make(map[string]string)}
	running := make(map[string]*fanout.Response)
	var names []string
	started := 0
	for started < responses || len(names) > 0 {
		if len(names) == 0 || (started < responses && rng.IntN(3) == 0) {
			name := string(rune('a' + started))
			started++
			names = append(names, name)
			sc.steps = append(sc.steps, func(c *conversation) { running[name] = c.start(name) })
			continue
		}
		i := rng.IntN(len(names))
		name := names[i]
		if rng.IntN(5) == 0 {
			names = append(names[:i], names[i+1:]...)
			sc.steps = append(sc.steps, func(*conversation) { running[name].End(done) })
			continue
		}
		var events []event.Event
		for range 1 + rng.IntN(3) {
			piece := fmt.Sprintf("%s%d.", name, len(sc.texts[name]))
			sc.texts[name] += piece
			events = append(events, text(piece))
		}
		sc.steps = append(sc.steps, func(c *conversation) {
			if err := running[name].Append(events); err != nil {
				c.t.Fatal(err)
			}
		})
	}
	for i := range sc.steps {
		sc.looks[i] = rng.IntN(2) == 0
	}
	sc.looks[len(sc.steps)-1] = true
	return sc
}

// heard is what a client has had of one response.
type heard struct {
	started, ended bool
	index          int
	text           string
}

// verify checks that the frames tell of each response that it starts, then all
// of its events in order, each once, then that it ends.
func (sc *scene) verify(frames []string) error {
	all := make(map[string]*heard)
	for i, frame := range frames {
		head, tail, _ := strings.Cut(frame, " ")
		name, digits, isEvent := strings.Cut(head, ":")
		h := all[name]
		if h == nil {
			h = new(heard)
			all[name] = h
		}
		switch {
		case h.ended:
			return fmt.Errorf("frame %d, %q, after the end", i, frame)
		case !isEvent && tail == "started":
			if h.started {
				return fmt.Errorf("frame %d, %q, twice", i, frame)
			}
			h.started = true
		case !h.started:
			return fmt.Errorf("frame %d, %q, before the start", i, frame)
		case !isEvent:
			h.ended = true
			if h.text != sc.texts[name] {
				return fmt.Errorf("%s ends with %q, want %q", name, h.text, sc.texts[name])
			}
		default:
			var index int
			if _, err := fmt.Sscan(digits, &index); err != nil || index <= h.index {
				return fmt.Errorf("frame %d, %q, after event %d", i, frame, h.index)
			}
			h.index = index
			h.text += tail
		}
	}
	for name := range sc.texts {
		if h := all[name]; h == nil || !h.ended {
			return fmt.Errorf("%s has not ended: %+v", name, h)
		}
	}
	return nil
}

// cut is how a client is cut off: after how many frames, and for how many
// steps it stays away.
type cut struct {
	frames, away int
	merge        bool
	changes      bool // it merges, or not, after it has come back
}

// play plays the scene to a client that joins after some steps and is cut off
// once. It returns all that the client was told.
func (sc *scene) play(c *conversation, join int, cut cut) (frames []string) {
	var l *listener
	back := -1
	left := cut.frames
	for i, step := range sc.steps {
		if i == join {
			l = c.listen(true, "")
			l.merge = cut.merge
		}
		step(c)
		if i == back || (back >= 0 && i == len(sc.steps)-1) {
			frames = l.told
			l = c.listen(true, l.lastID)
			l.merge = cut.merge != cut.changes
			back, left = -1, -1
		}
		if l == nil || back >= 0 || !sc.looks[i] {
			continue
		}
		told := len(l.told)
		if !l.read(left) {
			if left > 0 {
				left -= len(l.told) - told
			}
			continue
		}
		l.sub.Close()
		back = i + 1 + cut.away
		if i == len(sc.steps)-1 {
			frames = l.told
			l = c.listen(true, l.lastID)
			l.read(-1)
			back = -1
		}
	}
	l.sub.Close()
	return append(frames, l.told...)
}

// A client that is cut off anywhere and comes back has everything once.
func TestAChannelGoesOnWhereItWasCut(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			merge := seed%3 == 0
			sc := newScene(rng)
			whole := sc.play(converse(t), 0, cut{frames: -1, merge: merge})
			if err := sc.verify(whole); err != nil {
				t.Fatalf("never cut off: %v\n%q", err, whole)
			}
			for position := 1; position <= len(whole); position++ {
				c := converse(t)
				told := sc.play(c, 0, cut{position, rng.IntN(len(sc.steps)), merge, seed%2 == 0})
				if err := sc.verify(told); err != nil {
					t.Fatalf("cut off after frame %d: %v\n%q", position, err, told)
				}
				if active, _ := c.Len(); active != 0 {
					t.Fatalf("%d still run", active)
				}
			}
		})
	}
}

// The same for a client that joins in the middle: what ended before that it is
// never told. It may be cut off while it is told what runs.
func TestAClientWhoJoinsInTheMiddleGoesOnWhereItWasCut(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			sc := newScene(rng)
			join := 1 + rng.IntN(len(sc.steps)-1)
			whole := sc.play(converse(t), join, cut{frames: -1})
			known := *sc
			known.texts = make(map[string]string)
			for name, text := range sc.texts {
				if strings.Contains(strings.Join(whole, "|"), name+" started") {
					known.texts[name] = text
				}
			}
			if err := known.verify(whole); err != nil {
				t.Fatalf("never cut off: %v\n%q", err, whole)
			}
			for position := 1; position <= len(whole); position++ {
				told := sc.play(converse(t), join, cut{frames: position, away: rng.IntN(5)})
				if err := known.verify(told); err != nil {
					t.Fatalf("joined at step %d, cut off after frame %d: %v\n%q", join, position, err, told)
				}
			}
		})
	}
}

// evictSome lets the responses go that have ended, but for the last ones.
func (c *conversation) evictSome(rng *rand.Rand) {
	if len(c.begun) == 0 {
		return
	}
	r := c.begun[rng.IntN(len(c.begun))]
	if _, terminal := r.Head(); terminal != nil && !c.isGone(r) {
		c.evict(r)
	}
}

func (c *conversation) isGone(r *fanout.Response) bool {
	_, err := c.Find(r.ID(), r.Access)
	return err != nil
}

// Where responses expire or are evicted while the client is away or slow, it
// has everything once, or learns that it has not.
func TestAChannelNeverLosesSilently(t *testing.T) {
	outcomes := make(map[string]int)
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			sc := newScene(rng)
			c := converse(t)
			l := c.listen(true, "")
			var told []string
			for i, step := range sc.steps {
				step(c)
				after(time.Duration(rng.Int64N(int64(keep))))
				if rng.IntN(4) == 0 {
					c.evictSome(rng)
				}
				if !sc.looks[i] {
					continue
				}
				cutOff := l.read(1 + rng.IntN(6))
				if err := l.sub.Err(); err != nil {
					outcomes["told so"]++
					l.sub.Close()
					return
				}
				if !cutOff {
					continue
				}
				l.sub.Close()
				told = append(told, l.told...)
				after(time.Duration(rng.Int64N(int64(keep))))
				sub, err := c.Subscribe("chat", alice, true, l.lastID)
				if err != nil {
					if !errors.Is(err, fanout.ErrExpired) {
						t.Fatal(err)
					}
					outcomes["refused"]++
					return
				}
				l = &listener{t: t, sub: sub, names: c.names, lastID: l.lastID}
			}
			l.read(-1)
			told = append(told, l.told...)
			l.sub.Close()
			if err := sc.verify(told); err != nil {
				t.Fatalf("seed %d: %v\n%q", seed, err, told)
			}
			outcomes["whole"]++
		})
	}
	if len(outcomes) < 3 {
		t.Fatalf("not all outcomes were met: %v", outcomes)
	}
}

// Hundreds of responses at once, and a client that comes back at every
// position of all that it was ever told: each time it is told the rest, in the
// same order.
func TestAClientComesBackAtEveryPositionOfHundredsOfResponses(t *testing.T) {
	const responses, rounds = 300, 4
	for _, joins := range []string{"first", "in the middle"} {
		t.Run(joins, func(t *testing.T) {
			c := converse(t)
			var l *listener
			if joins == "first" {
				l = c.listen(true, "")
			}
			all := make([]*fanout.Response, responses)
			for i := range all {
				all[i] = c.start(fmt.Sprint(i))
			}
			for round := range rounds {
				for i, r := range all {
					add(t, r, fmt.Sprint(i, "/", round, " "))
				}
				if l == nil && round == 1 {
					l = c.listen(true, "")
				}
				if round == 2 {
					for i := 0; i < responses; i += 2 {
						all[i].End(done)
					}
				}
			}
			for _, r := range all {
				r.End(done)
			}
			l.read(-1)
			l.sub.Close()
			if want := responses * (rounds + 3); len(l.told) != want-responses/2 {
				t.Fatalf("told %d frames, want %d", len(l.told), want)
			}
			for i, id := range l.ids {
				back, rest := c.listen(true, id), l.told[i+1:]
				limit := -1
				if i%20 > 0 { // the rest of the rest is read from other positions
					limit = 40
					rest = rest[:min(limit, len(rest))]
				}
				back.read(limit)
				back.sub.Close()
				if !slices.Equal(back.told, rest) {
					t.Fatalf("after %d of %d frames it is told %d others", i+1, len(l.told), len(back.told))
				}
			}
		})
	}
}

func TestCurrentIsTheRunningResponseThatBeganLast(t *testing.T) {
	c := converse(t)
	want := func(want *fanout.Response) {
		t.Helper()
		if got := c.Current("chat", alice); got != want {
			t.Fatalf("%p, want %p of %v", got, want, c.begun)
		}
	}
	want(nil)
	a, b := c.start("a"), c.start("b")
	want(b)
	if got := c.Current("chat", fanout.Access{Scope: alice.Scope, Owner: "bob"}); got != nil {
		t.Fatal("somebody else finds it")
	}
	if got := c.Current("another", alice); got != nil {
		t.Fatal("it is found on another channel")
	}
	d := c.start("d")
	b.End(done)
	want(d)
	d.Discard(failed)
	want(a)
	a.End(done)
	want(nil)
	if got := c.Holdings().Channels; got != 1 {
		t.Fatalf("%d channels: a look made one", got)
	}
}
