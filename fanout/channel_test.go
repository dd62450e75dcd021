package fanout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// listener is a client of a channel: what it has been told, and the last id.
type listener struct {
	t      testing.TB
	sub    *fanout.Subscription
	names  map[string]string // of responses, by id
	merge  bool
	told   []string
	lastID string
	ids    []string // of the frames that were told
}

// listen subscribes to the channel "chat".
func listen(tb testing.TB, reg *fanout.Registry, as fanout.Access, frames bool, from string, names map[string]string) *listener {
	tb.Helper()
	sub, err := reg.Subscribe("chat", as, frames, from)
	if err != nil {
		tb.Fatalf("subscribe from %q: %v", from, err)
	}
	return &listener{t: tb, sub: sub, names: names, lastID: from}
}

// read is told all there is, but no more than limit frames. It reports whether
// it has reached the limit.
func (l *listener) read(limit int) bool {
	l.t.Helper()
	for items := l.sub.Read(); len(items) > 0; items = l.sub.Read() {
		before := len(l.told)
		if l.readItems(items, limit) {
			return true
		}
		if limit > 0 {
			limit -= len(l.told) - before
		}
	}
	return limit == 0
}

func (l *listener) readItems(items []fanout.Item, limit int) bool {
	l.t.Helper()
	for _, item := range items {
		name := l.names[item.Response.ID()]
		switch {
		case limit == 0:
			return true
		case item.Started, item.Ended:
			word := "started"
			if item.Ended {
				word = string(fanout.StatusOf(item.Terminal))
			}
			l.sub.Had(&item, 0)
			l.hear(name + " " + word)
			limit--
			continue
		}
		for index, ev, ok := item.Events.Next(bound(l.merge)); ok; index, ev, ok = item.Events.Next(bound(l.merge)) {
			if limit == 0 {
				return true
			}
			l.sub.Had(&item, index)
			l.hear(fmt.Sprintf("%s:%d %s", name, index, ev.Text))
			limit--
		}
	}
	return limit == 0
}

func (l *listener) hear(frame string) {
	l.told = append(l.told, frame)
	l.lastID = l.sub.Position()
	l.ids = append(l.ids, l.lastID)
}

// want checks what was told since the last time.
func (l *listener) want(frames ...string) {
	l.t.Helper()
	l.read(-1)
	if !slices.Equal(l.told, frames) {
		l.t.Fatalf("told %q, want %q", l.told, frames)
	}
	l.told = nil
	if items := l.sub.Read(); len(items) != 0 {
		l.t.Fatalf("%d items again", len(items))
	}
}

// conversation is a registry with responses on the channel "chat", by name.
type conversation struct {
	*fanout.Registry
	t     testing.TB
	names map[string]string
	begun []*fanout.Response
}

func converse(tb testing.TB) *conversation {
	tb.Helper()
	return &conversation{Registry: fanout.NewRegistry(), t: tb, names: make(map[string]string)}
}

// start begins a response and announces it.
func (c *conversation) start(name string) *fanout.Response {
	c.t.Helper()
	s := spec()
	s.Channel = "chat"
	r := begin(c.t, c.Registry, s)
	c.names[r.ID()] = name
	c.begun = append(c.begun, r)
	r.Publish()
	return r
}

func (c *conversation) listen(frames bool, from string) *listener {
	c.t.Helper()
	return listen(c.t, c.Registry, alice, frames, from, c.names)
}

func TestAChannelTellsWhatStartsAndEnds(t *testing.T) {
	c := converse(t)
	l := c.listen(false, "")
	l.want()
	a, b := c.start("a"), c.start("b")
	add(t, a, "x")
	l.want("a started", "b started")
	b.End(failed)
	l.want("b failed")
	d := c.start("d")
	d.End(done)
	a.End(cancelled)
	l.want("d started", "d done", "a cancelled")
	l.sub.Close()
}

func TestAChannelTellsFramesBetweenStartAndEnd(t *testing.T) {
	c := converse(t)
	l := c.listen(true, "")
	a, b := c.start("a"), c.start("b")
	add(t, a, "x", "y")
	add(t, b, "1")
	l.want("a started", "b started", "a:1 x", "a:2 y", "b:1 1")
	add(t, b, "2")
	a.End(done)
	d := c.start("d")
	add(t, d, "q")
	d.End(failed)
	l.want("b:2 2", "a:3 ", "a done", "d started", "d:1 q", "d:2 ", "d failed")
	l.merge = true
	add(t, b, "3", "4")
	l.want("b:4 34")
	l.sub.Close()
}

func TestOnJoiningAChannelWhatRunsIsToldFromItsStart(t *testing.T) {
	for _, frames := range []bool{false, true} {
		c := converse(t)
		ended, a, b := c.start("ended"), c.start("a"), c.start("b")
		add(t, a, "x", "y")
		ended.End(done)
		l := c.listen(frames, "")
		add(t, a, "z")
		b.End(done) // before the first look
		if frames {
			l.want("a started", "b started", "a:1 x", "a:2 y", "a:3 z", "b:1 ", "b done")
		} else {
			l.want("a started", "b started", "b done")
		}
		l.sub.Close()
	}
}

func TestAResponseIsAnnouncedOnce(t *testing.T) {
	c := converse(t)
	l := c.listen(false, "")
	silent := begin(t, c.Registry, spec())
	silent.Publish() // it has no channel
	s := spec()
	s.Channel = "chat"
	late := begin(t, c.Registry, s)
	late.End(done)
	late.Publish() // it has ended
	a := c.start("a")
	a.Publish()
	l.want("a started")
	a.End(done)
	a.Publish()
	l.want("a done")
	l.sub.Close()
}

func TestAChannelBelongsToItsOwnerAndScope(t *testing.T) {
	c := converse(t)
	c.start("a")
	for _, as := range []fanout.Access{
		{Scope: alice.Scope, Owner: "bob"}, {Scope: alice.Scope}, {Scope: "example.org", Owner: "alice"},
	} {
		l := listen(t, c.Registry, as, true, "", c.names)
		l.want()
		l.sub.Close()
	}
	l := c.listen(true, "")
	l.want("a started")
	l.sub.Close()
}

func TestAListenerIsWokenByWhatItListensTo(t *testing.T) {
	c := converse(t)
	notices, frames := c.listen(false, ""), c.listen(true, "")
	a := c.start("a")
	notices.want("a started")
	frames.want("a started")
	forNotices, forFrames := notices.sub.Changed(), frames.sub.Changed()
	add(t, a, "x")
	if isReady(forNotices) || !isReady(forFrames) {
		t.Fatal("an event must wake who wants frames, and nobody else")
	}
	forFrames = frames.sub.Changed()
	a.End(done)
	if !isReady(forNotices) || !isReady(forFrames) {
		t.Fatal("the end wakes both")
	}
	notices.sub.Close()
	frames.sub.Close()
}

func TestWhoHasFramesOfAChannelReadsItsResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, up := converse(t), new(upstream)
		s := up.spec()
		s.Channel = "chat"
		r := begin(t, c.Registry, s)
		r.Publish()
		follow(t, r, 0)
		notices, frames := c.listen(false, ""), c.listen(true, "")
		if r.Readers() != 2 {
			t.Fatalf("%d readers, want the one and who has frames", r.Readers())
		}
		r.Leave()
		after(2 * grace)
		up.want(t)
		frames.sub.Close()
		after(grace)
		up.want(t, fanout.ErrAbandoned)
		notices.sub.Close()
	})
}

func TestAReaderOfAChannelHasWhatItFollowsThoughKeepRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		a := c.start("a")
		add(t, a, "x")
		l := c.listen(true, "")
		l.want("a started", "a:1 x")
		add(t, a, "y")
		a.End(done)
		after(2 * keep)
		l.want("a:2 y", "a:3 ", "a done")
		if err := l.sub.Err(); err != nil {
			t.Fatal(err)
		}
		wantFind(t, c.Registry, a, fanout.ErrExpired)
		after(keep)
		wantFind(t, c.Registry, a, fanout.ErrUnknown)
		l.sub.Close()
		after(keep)
		wantNothing(t, c.Registry)
	})
}

// evict lets kept responses go, the last of which is r. The other half of what
// may be held is taken by one that ends after it.
func (c *conversation) evict(r *fanout.Response) {
	c.t.Helper()
	other := begin(c.t, c.Registry, spec())
	add(c.t, other, strings.Repeat("x", 64<<10+c.Holdings().Total))
	other.End(done)
	follow(c.t, other, 0) // so that it is passed over as r is, where that is read
	defer other.Leave()
	for limit := c.Holdings().Total; r.Held() > 0; limit -= 10 {
		c.Limit(limit)
	}
	c.Limit(0)
	if _, err := r.Follow(0); err == nil {
		c.t.Fatal("it can still be followed")
	}
	wantFind(c.t, c.Registry, other, nil)
}

func TestAReaderOfAChannelKnowsThatItMissedSomething(t *testing.T) {
	tests := map[string]struct {
		notices, frames bool // whether a reader that wants them has lost something
		lose            func(c *conversation, l *listener)
	}{
		"begun and over": {true, false, func(c *conversation, _ *listener) {
			c.start("a").End(done)
			after(keep)
		}},
		"evicted": {true, true, func(c *conversation, l *listener) {
			a := c.start("a")
			l.want("a started")
			add(c.t, a, "x")
			a.End(done)
			c.evict(a)
		}},
	}
	for name, test := range tests {
		for frames, lost := range map[bool]bool{false: test.notices, true: test.frames} {
			t.Run(fmt.Sprint(name, " frames ", frames), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := converse(t)
					before := c.start("before")
					l := c.listen(frames, "")
					l.want("before started")
					changed := l.sub.Changed()
					test.lose(c, l)
					l.lastID = l.sub.Position() // as of a reconnect frame
					if err := l.sub.Err(); !isReady(changed) || !isReady(l.sub.Changed()) || errors.Is(err, fanout.ErrExpired) != lost {
						t.Fatalf("woken: %v, %v", isReady(changed), err)
					}
					add(t, before, "x")
					if items := l.sub.Read(); len(items) == 0 != lost {
						t.Fatalf("%d items, lost: %v", len(items), lost)
					}
					l.sub.Close()
					if _, err := c.Subscribe("chat", alice, frames, l.lastID); !errors.Is(err, fanout.ErrExpired) {
						t.Fatalf("back again: %v, want ErrExpired", err) // it held what it has not read, and let go
					}
					anew := c.listen(frames, "")
					anew.read(-1)
					if !strings.HasPrefix(strings.Join(anew.told, ","), "before started") {
						t.Fatalf("anew: %q", anew.told)
					}
					anew.sub.Close()
				})
			})
		}
	}
}

// An idle channel is forgotten; one whose only response runs for longer than
// it is kept is not idle, whether it has readers or not.
func TestAChannelIsThereWhileAResponseRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		a := c.start("a")
		l := c.listen(true, "")
		add(t, a, "x")
		l.want("a started", "a:1 x")
		l.sub.Close()
		after(3 * keep)
		add(t, a, "y")
		a.End(done)
		after(keep - 1)
		l = c.listen(true, l.lastID)
		l.want("a:2 y", "a:3 ", "a done")
		l.sub.Close()
	})
}

func TestWhatIsNotHadIsReadAgain(t *testing.T) {
	c := converse(t)
	a := c.start("a")
	l := c.listen(true, "")
	b := c.start("b")
	add(t, b, "x")
	for range 3 {
		if items := l.sub.Read(); len(items) != 1 || !items[0].Started || items[0].Response != a {
			t.Fatalf("%d items, want the start of what ran on joining", len(items))
		}
		if a.Readers() != 1 || b.Readers() != 1 {
			t.Fatalf("%d and %d readers", a.Readers(), b.Readers())
		}
	}
	l.read(1)
	l.told = nil
	l.want("b started", "b:1 x")
	l.sub.Close()
	if a.Readers() != 0 || b.Readers() != 0 {
		t.Fatalf("%d and %d readers left", a.Readers(), b.Readers())
	}
}

func TestWhatIsNotHadOnJoiningIsReadAgain(t *testing.T) {
	c := converse(t)
	c.start("ended").End(done)
	c.start("a")
	c.start("b")
	l := c.listen(false, "")
	l.read(1)
	l.read(0)
	l.want("a started", "b started")
	l.sub.Close()
}

func TestADiscardedResponseEndsOnItsChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		l := c.listen(true, "")
		a := c.start("a")
		l.want("a started")
		a.Discard(failed)
		l.want("a failed")
		b := c.start("b")
		b.Discard(failed) // no reader has looked in between
		l.want("b started", "b failed")
		for _, r := range []*fanout.Response{a, b} {
			wantFind(t, c.Registry, r, fanout.ErrUnknown)
			if _, err := r.Follow(0); !errors.Is(err, fanout.ErrUnknown) {
				t.Fatalf("%v, want ErrUnknown", err)
			}
		}
		l.sub.Close()
		after(keep)
		if a.Armed() || b.Armed() {
			t.Fatal("a timer is left")
		}
		after(keep)
		wantNothing(t, c.Registry)
	})
}
