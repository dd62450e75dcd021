package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// churn is a registry with many responses that live and end at random.
type churn struct {
	t       *testing.T
	begun   int
	rng     *rand.Rand
	reg     *fanout.Registry
	running []*fanout.Response
	readers []*fanout.Response // one entry for each reader
	subs    []*fanout.Subscription
}

func (c *churn) begin() {
	s := spec()
	s.Keep = time.Duration(1+c.rng.IntN(60)) * time.Second
	s.Grace = time.Duration(1+c.rng.IntN(5)) * time.Second
	if c.rng.IntN(2) == 0 {
		s.Channel = fmt.Sprint("chat", c.rng.IntN(20))
	}
	if c.rng.IntN(2) == 0 {
		s.Call = fanout.Call{Key: fmt.Sprint("key", c.rng.IntN(500)), Body: fmt.Sprint(c.rng.IntN(2))}
	}
	var r *fanout.Response
	s.Cancel = func(error) { r.End(cancelled) }
	r, found, err := c.reg.Begin(fanout.NewID(), s)
	switch {
	case errors.Is(err, fanout.ErrMismatch), errors.Is(err, fanout.ErrFull):
		return
	case err != nil:
		c.t.Fatal(err)
	case !found:
		c.begun++
		c.running = append(c.running, r)
	}
	if c.rng.IntN(2) == 0 {
		r.Publish()
	}
	c.follow(r)
}

func (c *churn) follow(r *fanout.Response) {
	if _, err := r.Follow(0); err == nil {
		c.readers = append(c.readers, r)
	}
}

// end ends a response in one of all ways.
func (c *churn) end(r *fanout.Response) {
	switch c.rng.IntN(7) {
	case 0:
		r.End(failed)
	case 1:
		r.Discard(failed)
	case 2:
		r.Cancel(fanout.ErrCancelled)
	case 3:
		r.Discard(failed)
		r.End(done)
	case 4:
		r.End(failed)
		r.Discard(failed)
	case 5: // its readers leave it alone
		c.readers = removeAll(c.readers, r)
	default:
		r.End(done)
	}
}

// removeAll leaves for every reader of a response.
func removeAll(readers []*fanout.Response, r *fanout.Response) []*fanout.Response {
	rest := readers[:0]
	for _, reader := range readers {
		if reader == r {
			r.Leave()
		} else {
			rest = append(rest, reader)
		}
	}
	return rest
}

// take removes a random element.
func take[T any](rng *rand.Rand, list *[]T) (element T, ok bool) {
	if len(*list) == 0 {
		return element, false
	}
	i, last := rng.IntN(len(*list)), len(*list)-1
	element = (*list)[i]
	(*list)[i] = (*list)[last]
	*list = (*list)[:last]
	return element, true
}

// step lets one thing happen.
func (c *churn) step() {
	switch c.rng.IntN(7) {
	case 0:
		c.begin()
	case 1:
		if r, ok := take(c.rng, &c.running); ok {
			if c.rng.IntN(3) > 0 {
				_ = r.Append(nil)
				add(c.t, r, strings.Repeat("x", c.rng.IntN(4<<10)))
			}
			c.end(r)
		}
	case 2:
		if r, ok := take(c.rng, &c.readers); ok {
			r.Leave()
		}
	case 3:
		if len(c.readers) > 0 {
			c.follow(c.readers[c.rng.IntN(len(c.readers))])
		}
	case 4:
		sub, err := c.reg.Subscribe(fmt.Sprint("chat", c.rng.IntN(20)), alice, c.rng.IntN(2) == 0, "")
		if err != nil {
			c.t.Fatal(err)
		}
		c.subs = append(c.subs, sub)
	case 5:
		if sub, ok := take(c.rng, &c.subs); ok {
			sub.Read()
			sub.Close()
		}
	default:
		time.Sleep(time.Duration(c.rng.Int64N(int64(2 * time.Second))))
	}
}

func TestNothingIsLeftOfTenThousandResponses(t *testing.T) {
	const rounds = 10
	for round := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			c := &churn{t: t, rng: rand.New(rand.NewPCG(round, 8)), reg: fanout.NewRegistry()}
			if round%2 == 0 {
				c.reg.Limit(256 << 10)
			}
			for c.begun < 1000 {
				c.step()
			}
			for r, ok := take(c.rng, &c.running); ok; r, ok = take(c.rng, &c.running) {
				c.end(r)
			}
			for r, ok := take(c.rng, &c.readers); ok; r, ok = take(c.rng, &c.readers) {
				r.Leave()
			}
			for sub, ok := take(c.rng, &c.subs); ok; sub, ok = take(c.rng, &c.subs) {
				sub.Close()
			}
			after(time.Hour)
			if active, kept := c.reg.Len(); active != 0 || kept != 0 {
				t.Fatalf("%d running, %d kept", active, kept)
			}
			wantNothing(t, c.reg)
		})
	}
}

// hammer is a registry that many goroutines use at once.
type hammer struct {
	reg    *fanout.Registry
	ids    sync.Map // of responses that a reader may look for
	reads  atomic.Int64
	errors chan error
}

func (h *hammer) fail(format string, args ...any) {
	select {
	case h.errors <- fmt.Errorf(format, args...):
	default:
	}
}

// produce makes a response of n events and reads it beside that.
func (h *hammer) produce(rng *rand.Rand, n int) {
	s := spec()
	s.Keep, s.Grace = time.Duration(rng.IntN(3))*time.Millisecond, time.Duration(rng.IntN(3))*time.Millisecond
	s.Channel = fmt.Sprint("chat", rng.IntN(3))
	r, _, err := h.reg.Begin(fanout.NewID(), s)
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	h.ids.Store(r.ID(), n)
	defer h.ids.Delete(r.ID())
	var reader sync.WaitGroup
	if c, err := r.Follow(0); err == nil {
		reader.Go(func() { h.read(r, c, n) })
	}
	r.Publish()
	for i := range n {
		if err := r.Append([]event.Event{text(fmt.Sprint(i % 10))}); err != nil {
			h.fail("append: %w", err)
		}
	}
	if n == 13 {
		r.Discard(failed)
	}
	r.End(done)
	reader.Wait()
}

// read reads a response of n events to its end.
func (h *hammer) read(r *fanout.Response, c *fanout.Cursor, n int) {
	defer r.Leave()
	next := c.Index()
	for !c.Ended() {
		<-c.Changed()
		batch := c.Read()
		for index, ev, ok := batch.Next(next % 2 * 3); ok; index, ev, ok = batch.Next(next % 2 * 3) {
			for _, digit := range ev.Text {
				if int(digit-'0') != next%10 {
					h.fail("event %d of %d is %c", next, n, digit)
				}
				next++
			}
			c.Advance(index)
		}
		if batch.Skipped > 0 {
			h.fail("%d events skipped", batch.Skipped)
		}
	}
	if next < n {
		h.fail("%d events, want %d", next, n)
	}
	h.reads.Add(1)
}

// look looks for responses and reads, cancels or discards them.
func (h *hammer) look(rng *rand.Rand) {
	h.ids.Range(func(id, n any) bool {
		r, err := h.reg.Find(id.(string), alice)
		if err != nil {
			return true
		}
		if c, err := r.Follow(rng.IntN(3)); err == nil {
			h.read(r, c, n.(int))
		}
		r.Cancel(fanout.ErrCancelled)
		return rng.IntN(4) > 0
	})
	h.reg.FindKey("k")
	h.reg.Len()
}

// listen follows a channel for a while.
func (h *hammer) listen(rng *rand.Rand) {
	position := ""
	for range 3 {
		sub, err := h.reg.Subscribe(fmt.Sprint("chat", rng.IntN(3)), alice, rng.IntN(2) == 0, position)
		if err != nil {
			position = ""
			continue
		}
		for range 5 {
			sub.Changed()
			for _, item := range sub.Read() {
				index, ok := 0, true
				if !item.Started && !item.Ended {
					index, _, ok = item.Events.Next(whole)
				}
				if !ok { // it was forgotten after the lock was free
					break
				}
				sub.Had(&item, index)
				position = sub.Position()
			}
		}
		sub.Close()
	}
}

func TestEverythingAtOnce(t *testing.T) {
	h := &hammer{reg: fanout.NewRegistry(), errors: make(chan error, 1)}
	var all sync.WaitGroup
	for i := range uint64(8) {
		rng := rand.New(rand.NewPCG(i, 9))
		all.Go(func() {
			for range 200 {
				switch {
				case i < 4:
					h.produce(rng, rng.IntN(50))
				case i < 6:
					h.look(rng)
				default:
					h.listen(rng)
				}
			}
		})
	}
	all.Wait()
	if err := h.reg.Destruct(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-h.errors:
		t.Fatal(err)
	default:
	}
	wantNothing(t, h.reg)
	if h.reads.Load() < 800 {
		t.Fatalf("%d responses were read", h.reads.Load())
	}
}
