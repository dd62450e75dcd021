package fanout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

func TestAPositionOfAnotherRegistryIsExpired(t *testing.T) {
	c := converse(t)
	l := c.listen(true, "")
	c.start("a")
	l.want("a started")
	l.sub.Close()
	if _, err := fanout.NewRegistry().Subscribe("chat", alice, true, l.lastID); !errors.Is(err, fanout.ErrExpired) {
		t.Fatalf("%v, want ErrExpired", err)
	}
}

func TestWhatIsNoPositionIsABadCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second) // so that a position has digits
		c := converse(t)
		r := c.start("a")
		add(t, r, "x")
		l := c.listen(true, "")
		head := l.sub.Head()
		at := fmt.Sprintf("%s.%d", c.Epoch(), head)
		for name, from := range map[string]string{
			"text":                 "garbage",
			"event id":             r.ID() + ":1",
			"epoch alone":          c.Epoch(),
			"no position":          c.Epoch() + ".",
			"negative":             c.Epoch() + ".-1",
			"plus sign":            c.Epoch() + ".+1",
			"leading zero":         c.Epoch() + ".01",
			"21 digits":            c.Epoch() + ".123456789012345678901",
			"more than 64 bits":    c.Epoch() + ".18446744073709551616",
			"a position to come":   fmt.Sprintf("%s.%d", c.Epoch(), head+1),
			"empty part":           at + ".",
			"negative steps":       at + ".-1",
			"zero before steps":    at + ".01",
			"more than was joined": at + ".3",
			"more than int":        at + ".9223372036854775808",
			"a third part":         at + ".1.1",
			"an id":                at + "." + r.ID() + "-1",
			"space":                " " + at,
			"line break":           at + "\r\n",
			"a million parts":      at + strings.Repeat(".", 1<<20),
			"longer than allowed":  at + "." + strings.Repeat("1", fanout.MaxPosition),
		} {
			if _, err := c.Subscribe("chat", alice, true, from); !errors.Is(err, fanout.ErrBadCursor) {
				t.Errorf("%s: %v, want ErrBadCursor", name, err)
			}
			if r.Readers() != 1 {
				t.Fatalf("%s: %d readers left behind", name, r.Readers()-1)
			}
		}
		l.want("a started", "a:1 x")
		if want := []string{at + ".1", at}; !slices.Equal(l.ids, want) {
			t.Fatalf("the positions are %q, want %q", l.ids, want)
		}
		l.sub.Close()
	})
}

// However many responses run, and whatever a reader has had of them, its
// position is short and written in one way.
func TestAPositionIsShort(t *testing.T) {
	c := converse(t)
	for i := range 1000 {
		add(t, c.start(fmt.Sprint(i)), "x", "y")
	}
	l := c.listen(true, "")
	l.read(-1)
	if len(l.told) != 3000 {
		t.Fatalf("told %d frames", len(l.told))
	}
	for _, id := range l.ids {
		if len(id) > 48 {
			t.Fatalf("the position %q has %d bytes", id, len(id))
		}
	}
	l.sub.Close()
}

// There is one order and one position in it: a client that comes back for
// frames and had none before goes on where it is, as one that had them.
func TestAPositionIsTheSameWithAndWithoutFrames(t *testing.T) {
	c := converse(t)
	l := c.listen(false, "")
	a := c.start("a")
	add(t, a, "x")
	l.want("a started")
	l.sub.Close()
	l = c.listen(true, l.lastID)
	l.want("a:1 x")
	l.sub.Close()
	l = c.listen(false, l.lastID)
	add(t, a, "y")
	a.End(done)
	l.want("a done")
	l.sub.Close()
}

// What is said on a channel does not make a client lose its place that only
// wants to know what starts and ends.
func TestNoticesAreNotLostInWhatIsSaid(t *testing.T) {
	c := converse(t)
	a, b := c.start("a"), c.start("b")
	l, idle := c.listen(false, ""), c.listen(false, "")
	l.want("a started", "b started")
	idle.want("a started", "b started")
	frames := c.listen(true, "")
	frames.read(-1)
	for frames.sub.Err() == nil { // until the order is longer than what is held of it
		for range 1000 {
			add(t, a, "x")
			add(t, b, "y")
		}
	}
	l.want()
	from := l.sub.Position()
	b.End(done)
	l.want("b done")
	idle.want("b done")
	for _, sub := range []*listener{l, idle, frames} {
		sub.sub.Close()
	}
	l = c.listen(false, from)
	l.want("b done")
	l.sub.Close()
	if _, err := c.Subscribe("chat", alice, true, frames.lastID); !errors.Is(err, fanout.ErrExpired) {
		t.Fatalf("%v, want ErrExpired", err)
	}
	l = c.listen(true, "") // and nothing of a response is lost for a reader that joins anew
	l.read(1)
	l.merge, l.told = true, nil
	l.read(-1)
	if n, _ := a.Head(); len(l.told) != 1 || l.told[0] != fmt.Sprintf("a:%d %s", n, strings.Repeat("x", n)) {
		t.Fatalf("told %d frames", len(l.told))
	}
	l.sub.Close()
}

// loseElsewhere lets a response of another channel begin, end, expire, be
// forgotten, and its channel with it.
func loseElsewhere(tb testing.TB, reg *fanout.Registry) {
	tb.Helper()
	s := spec()
	s.Channel = "another"
	r := begin(tb, reg, s)
	r.Publish()
	r.End(done)
	after(3 * keep)
	if got := reg.Holdings(); got.Responses != 0 {
		tb.Fatalf("%+v", got)
	}
}

func TestWhoIsCutOffFromAnIdleChannelFindsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		l := c.listen(true, "")
		a := c.start("a")
		a.End(done)
		l.want("a started", "a:1 ", "a done")
		loseElsewhere(t, c.Registry) // a is long gone as well
		old := l.lastID
		if l.sub.Position() == old {
			t.Fatal("the position has grown old")
		}
		l.sub.Close()
		after(keep - 1)
		l = c.listen(true, old)
		l.want()
		l.sub.Close()
		loseElsewhere(t, c.Registry)
		if _, err := c.Subscribe("chat", alice, true, old); !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("who was away for too long: %v, want ErrExpired", err)
		}
		after(keep)
		wantNothing(t, c.Registry)
	})
}

// The time of an idle channel is over, but before its timer has the lock
// a reader comes: then the channel is not idle.
func TestAListenerAtTheLastMomentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		a := c.start("a")
		a.End(done)
		after(keep) // now the channel is idle
		late := c.SubscribeLate("chat", alice, func() { time.Sleep(keep) })
		after(0)
		if got := c.Holdings(); got.Channels != 1 || got.Timers != 0 {
			t.Fatalf("%+v", got)
		}
		b := c.start("b")
		l := &listener{t: t, sub: late, names: c.names}
		l.want("b started")
		late.Close()
		b.Discard(failed)
		after(2 * keep)
		wantNothing(t, c.Registry)
	})
}

func TestDestructLeavesNoTimersOfChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		c.start("a").End(done)
		idle, followed := c.listen(false, ""), c.listen(false, "")
		after(keep)
		idle.sub.Close()
		if idle.sub.Armed() {
			t.Fatal("a channel that is followed has a timer")
		}
		followed.sub.Close()
		if !idle.sub.Armed() {
			t.Fatal("an idle channel has no timer")
		}
		followed = c.listen(false, "")
		if followed.sub.Armed() {
			t.Fatal("a channel that is followed again has a timer")
		}
		followed.sub.Close()
		if err := c.Destruct(); err != nil {
			t.Fatal(err)
		}
		if idle.sub.Armed() {
			t.Fatal("the timer of an idle channel is left")
		}
	})
}

func TestAChannelThatNobodyCanFindHasNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		c.start("a").End(done)
		l := c.listen(false, "")
		after(keep)
		if err := c.Destruct(); err != nil {
			t.Fatal(err)
		}
		l.sub.Close()
		if l.sub.Armed() {
			t.Fatal("a timer is left")
		}
	})
}

// A reconnect frame carries the position of the moment, also where the channel
// has never had a response.
func TestAPositionIsThatOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		l := c.listen(true, "")
		loseElsewhere(t, c.Registry)
		from := l.sub.Position()
		l.sub.Close()
		after(0)
		wantNothing(t, c.Registry)
		l = c.listen(true, from)
		b := c.start("b")
		l.want("b started")
		l.sub.Close()
		b.Discard(failed)
	})
}
