package fanout_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// follower is a reader that checks what it reads against the whole text, whose
// pieces are all of one width.
type follower struct {
	cursor *fanout.Cursor
	whole  string
	width  int
	err    error
}

// read reads everything there is, and reports whether more is to come.
func (f *follower) read() (more bool) {
	batch := f.cursor.Read()
	for index, ev, ok := batch.Next(whole); ok; index, ev, ok = batch.Next(whole) {
		before := f.cursor.Index()
		f.cursor.Advance(index)
		if ev.Kind.IsTerminal() {
			if before*f.width != len(f.whole) {
				f.err = fmt.Errorf("the end comes after event %d", before)
			}
			return false
		}
		if want := f.whole[before*f.width : index*f.width]; string(ev.Text) != want {
			f.err = fmt.Errorf("events %d to %d: %.40q, want %.40q", before+1, index, ev.Text, want)
			return false
		}
	}
	return true
}

// Two followers share a goroutine, because the race detector takes no more
// than 8,128 of them.
func TestTenThousandFollowersHaveEverythingInOrder(t *testing.T) {
	const followers, events, width = 10_000, 120, 8
	var whole strings.Builder
	for i := range events {
		fmt.Fprintf(&whole, "%0*d", width, i)
	}
	s := fanout.NewStream(fanout.NewID(), 0)
	all := make([]follower, followers)
	var waiting, ended sync.WaitGroup
	for i := 0; i < followers; i += 2 {
		pair := all[i : i+2]
		for j := range pair {
			pair[j] = follower{cursor: open(t, s, 0), whole: whole.String(), width: width}
		}
		waiting.Add(1)
		ended.Go(func() {
			a, b := pair[0].cursor.Changed(), pair[1].cursor.Changed()
			waiting.Done()
			for a != nil || b != nil {
				select {
				case <-a:
					if a = nil; pair[0].read() {
						a = pair[0].cursor.Changed()
					}
				case <-b:
					if b = nil; pair[1].read() {
						b = pair[1].cursor.Changed()
					}
				}
			}
		})
	}
	waiting.Wait()
	rest := whole.String()
	for n := 1; rest != ""; n = n%5 + 1 {
		var events []event.Event
		for ; n > 0 && rest != ""; n-- {
			events = append(events, text(rest[:width]))
			rest = rest[width:]
		}
		if err := s.Append(events); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	s.End(done)
	ended.Wait()
	for i := range all {
		if f := &all[i]; f.err != nil || !f.cursor.Ended() {
			t.Fatalf("follower %d, at %d: %v", i, f.cursor.Index(), f.err)
		}
	}
}

// A follower that does not read is a number: however much it misses, the
// memory is that of the log.
func TestWhoDoesNotReadCostsNothingForWhatItMisses(t *testing.T) {
	const missed = 20_000
	growth := func(followers int) int {
		s := fanout.NewStream(fanout.NewID(), 0)
		cursors := make([]*fanout.Cursor, followers)
		for i := range cursors {
			cursors[i] = open(t, s, 0)
			cursors[i].Changed()
		}
		before := heap()
		for range missed {
			add(t, s, "hello")
		}
		after := heap()
		runtime.KeepAlive(s)
		for _, c := range cursors {
			if c.Lag() != missed {
				t.Fatalf("lag %d, want %d", c.Lag(), missed)
			}
		}
		return after - before
	}
	growth(0) // what the test itself needs is allocated by now
	alone, followed := growth(0), growth(1000)
	if alone < 5*missed {
		t.Fatalf("the log of %d bytes grew the heap by %d", 5*missed, alone)
	}
	// one bit for each missed event would be 2.5 MB
	if extra := followed - alone; extra > 64<<10 {
		t.Fatalf("1,000 cursors cost %d bytes for %d events that they missed", extra, missed)
	}
}

// heap returns how many bytes of the heap are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
