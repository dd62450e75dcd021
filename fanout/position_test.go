package fanout_test

import (
	"errors"
	"fmt"
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
	c := converse(t)
	r := c.start("a")
	add(t, r, "x")
	epoch, id := c.Epoch(), r.ID()
	for name, from := range map[string]string{
		"text":                "garbage",
		"event id":            id + ":1",
		"epoch alone":         epoch,
		"no notice":           epoch + ".",
		"negative notice":     epoch + ".-1",
		"plus sign":           epoch + ".+1",
		"leading zero":        epoch + ".01",
		"20 digits":           epoch + ".12345678901234567890",
		"notice to come":      epoch + ".2",
		"empty part":          epoch + ".1.",
		"no index":            epoch + ".1." + id,
		"index of an event":   epoch + ".1." + id + ":1",
		"negative index":      epoch + ".1." + id + "--1",
		"zero before index":   epoch + ".1." + id + "-01",
		"index to come":       epoch + ".1." + id + "-2",
		"bad id":              epoch + ".1." + id[1:] + "-1",
		"twice":               epoch + ".1." + id + "-1." + id + "-1",
		"space":               " " + epoch + ".1",
		"line break":          epoch + ".1\r\n",
		"a million parts":     epoch + ".1" + strings.Repeat(".", 1<<20),
		"longer than allowed": epoch + ".1" + manyPlaces(fanout.MaxPosition/25+1),
	} {
		if _, err := c.Subscribe("chat", alice, true, from); !errors.Is(err, fanout.ErrBadCursor) {
			t.Errorf("%s: %v, want ErrBadCursor", name, err)
		}
		if r.Readers() != 0 {
			t.Fatalf("%s: %d readers left behind", name, r.Readers())
		}
	}
	l := c.listen(true, fmt.Sprintf("%s.1.%s-0", epoch, id))
	l.want("a:1 x")
	l.sub.Close()
}

// manyPlaces returns the part of a position that names n responses.
func manyPlaces(n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, ".%s-1", fanout.NewID())
	}
	return b.String()
}

func TestAPositionCanNameManyResponses(t *testing.T) {
	c := converse(t)
	l := c.listen(true, c.Epoch()+".0"+manyPlaces(1000))
	l.want()
	l.sub.Close()
}

// A client that comes back for frames, and had none before, gets them from the
// start, but is not told twice what has started.
func TestAPositionWithoutFramesGoesOnWithFrames(t *testing.T) {
	c := converse(t)
	l := c.listen(false, "")
	a := c.start("a")
	add(t, a, "x")
	l.want("a started")
	l.sub.Close()
	l = c.listen(true, l.lastID)
	l.want("a:1 x")
	l.sub.Close()
	l = c.listen(true, l.lastID)
	add(t, a, "y")
	l.want("a:2 y")
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
// somebody comes: then the channel is not idle.
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
