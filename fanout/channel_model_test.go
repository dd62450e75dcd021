package fanout_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// fact is one thing that a channel tells, in a model of it that is as simple as
// can be: a list of facts.
type fact struct {
	response *fanout.Response
	kind     byte // '+' begun, '-' ended, 0 an event
	index    int  // of an event
	text     string
}

// channelModel is a channel, what it should tell, and its readers.
type channelModel struct {
	t       testing.TB
	reg     *fanout.Registry
	facts   []fact
	running []*fanout.Response
	texts   map[*fanout.Response][]string
	readers []*modelReader
	places  []place
	evicted map[*fanout.Response]bool // responses that are not gone because their time was over
}

// place is where a reader was: it has had n of what was told to it on joining
// and of the facts after that.
type place struct {
	id     string
	joined []fact
	from   int // in facts
	n      int
}

// modelReader is a reader of the channel, and where the model has it.
type modelReader struct {
	sub    *fanout.Subscription
	frames bool
	at     place
}

// next returns what the reader is to be told next; n skips what it does not
// want to know.
func (m *channelModel) next(r *modelReader) (f fact, ok bool) {
	for {
		all := len(r.at.joined) + len(m.facts) - r.at.from
		switch {
		case r.at.n == all:
			return fact{}, false
		case r.at.n < len(r.at.joined):
			f = r.at.joined[r.at.n]
		default:
			f = m.facts[r.at.from+r.at.n-len(r.at.joined)]
		}
		if r.frames || f.kind != 0 {
			return f, true
		}
		r.at.n++
	}
}

// loses reports whether what a reader has not had is about a response of a
// kind.
func (m *channelModel) loses(at place, kind func(r *fanout.Response) bool) bool {
	rest := m.facts[at.from+max(0, at.n-len(at.joined)):]
	if at.n < len(at.joined) {
		rest = append(slices.Clone(at.joined[at.n:]), rest...)
	}
	return slices.ContainsFunc(rest, func(f fact) bool { return kind(f.response) })
}

func isGone(r *fanout.Response) bool { return r.Held() == 0 }

func (m *channelModel) begin(t *rapid.T) {
	s := spec()
	s.Channel = "chat"
	s.Keep = time.Duration(rapid.IntRange(1, 3).Draw(t, "keep")) * keep
	r := begin(m.t, m.reg, s)
	m.running, m.texts[r] = append(m.running, r), nil
	early := rapid.IntRange(0, 2).Draw(t, "events before it is announced")
	for i := range early {
		m.texts[r] = append(m.texts[r], fmt.Sprintf("<%d>", i))
		add(m.t, r, m.texts[r][i])
	}
	r.Publish()
	m.facts = append(m.facts, fact{response: r, kind: '+'})
	for i, text := range m.texts[r] {
		m.facts = append(m.facts, fact{r, 0, i + 1, text})
	}
}

// aRunning draws a response that runs.
func (m *channelModel) aRunning(t *rapid.T) *fanout.Response {
	if len(m.running) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(m.running).Draw(t, "response")
}

func (m *channelModel) append(t *rapid.T) {
	r := m.aRunning(t)
	var events []event.Event
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		n := len(m.texts[r]) + 1
		m.texts[r] = append(m.texts[r], fmt.Sprintf("<%d>", n))
		m.facts = append(m.facts, fact{r, 0, n, m.texts[r][n-1]})
		events = append(events, text(m.texts[r][n-1]))
	}
	if err := r.Append(events); err != nil {
		t.Fatal(err)
	}
}

func (m *channelModel) end(t *rapid.T) {
	r := m.aRunning(t)
	m.running = slices.DeleteFunc(m.running, func(other *fanout.Response) bool { return other == r })
	if rapid.IntRange(0, 3).Draw(t, "discard") == 0 {
		r.Discard(failed)
	} else {
		r.End(done)
		m.facts = append(m.facts, fact{response: r, index: len(m.texts[r]) + 1})
	}
	m.facts = append(m.facts, fact{response: r, kind: '-'})
}

// join lets a reader begin anew.
func (m *channelModel) join(t *rapid.T) {
	frames := rapid.Bool().Draw(t, "frames")
	sub, err := m.reg.Subscribe("chat", alice, frames, "")
	if err != nil {
		t.Fatal(err)
	}
	var joined []fact
	for _, r := range m.running {
		joined = append(joined, fact{response: r, kind: '+'})
	}
	for _, r := range m.running {
		for i, text := range m.texts[r] {
			joined = append(joined, fact{r, 0, i + 1, text})
		}
	}
	at := place{sub.Position(), joined, len(m.facts), 0}
	m.places = append(m.places, at)
	m.readers = append(m.readers, &modelReader{sub, frames, at})
}

// comeBack lets a reader go on at any place that a reader has ever been at.
func (m *channelModel) comeBack(t *rapid.T) {
	if len(m.places) == 0 {
		t.Skip("no reader has been anywhere")
	}
	at := rapid.SampledFrom(m.places).Draw(t, "place")
	frames := rapid.Bool().Draw(t, "frames")
	sub, err := m.reg.Subscribe("chat", alice, frames, at.id)
	switch {
	case err == nil:
		m.readers = append(m.readers, &modelReader{sub, frames, at})
	case !errors.Is(err, fanout.ErrExpired) || !m.loses(at, isGone):
		t.Fatalf("from %s: %v", at.id, err)
	}
}

func (m *channelModel) read(t *rapid.T) {
	i, r := m.aReader(t)
	changed := r.sub.Changed()
	limit, bound := rapid.IntRange(1, 20).Draw(t, "frames"), rapid.SampledFrom([]int{0, 1, 8, whole}).Draw(t, "bound")
	for items := r.sub.Read(); len(items) > 0; items = r.sub.Read() {
		if !isReady(changed) {
			t.Fatal("there is something to read, and nobody was woken")
		}
		for k := range items {
			if !m.check(t, r, &items[k], &limit, bound) {
				return
			}
		}
	}
	err := r.sub.Err()
	switch f, more := m.next(r); {
	case err != nil && !m.loses(r.at, isGone):
		t.Fatalf("nothing is lost: %v", err)
	case err != nil && r.frames && !m.loses(r.at, func(r *fanout.Response) bool { return m.evicted[r] }):
		t.Fatalf("what it reads is lost because its time was over: %v", err)
	case err != nil:
		m.leave(i)
	case more:
		t.Fatalf("nothing is told, and %+v is next", f)
	case isReady(r.sub.Changed()):
		t.Fatal("woken for nothing")
	}
}

// check compares an item with the model, frame by frame. It reports whether
// the reader reads on.
func (m *channelModel) check(t *rapid.T, r *modelReader, item *fanout.Item, limit *int, bound int) bool {
	f, _ := m.next(r)
	if item.Started || item.Ended {
		if f.response != item.Response || (f.kind == '+') != item.Started || (f.kind == '-') != item.Ended {
			t.Fatalf("told %+v, want %+v", item, f)
		}
		return m.had(r, item, 0, limit)
	}
	if item.Events.Skipped > 0 || item.Events.Len() == 0 {
		t.Fatalf("%d events skipped, %d left", item.Events.Skipped, item.Events.Len())
	}
	for index, ev, ok := item.Events.Next(bound); ok; index, ev, ok = item.Events.Next(bound) {
		text := ""
		for f.index < index || text == "" {
			if f, _ = m.next(r); f.response != item.Response || f.kind != 0 || f.index > index {
				t.Fatalf("told event %d of %p, want %d of %p", index, item.Response, f.index, f.response)
			}
			if text += f.text; f.index == index {
				break
			}
			r.at.n++
		}
		if string(ev.Text) != text || (bound > 0 && len(text) > max(bound, len(f.text))) {
			t.Fatalf("told %q to %d, want %q", ev.Text, index, text)
		}
		if !m.had(r, item, index, limit) {
			return false
		}
	}
	return true
}

// had moves a reader on, and reports whether it reads on.
func (m *channelModel) had(r *modelReader, item *fanout.Item, index int, limit *int) bool {
	r.sub.Had(item, index)
	if r.at.n++; !r.frames && r.at.n < len(r.at.joined) && r.at.joined[r.at.n].kind == 0 {
		r.at.n = len(r.at.joined) // it is told no more of what ran on joining
	}
	r.at.id = r.sub.Position()
	m.places = append(m.places, r.at)
	*limit--
	return *limit > 0
}

func (m *channelModel) aReader(t *rapid.T) (int, *modelReader) {
	if len(m.readers) == 0 {
		t.Skip("nobody reads")
	}
	i := rapid.IntRange(0, len(m.readers)-1).Draw(t, "reader")
	return i, m.readers[i]
}

func (m *channelModel) leave(i int) {
	m.readers[i].sub.Close()
	m.readers = slices.Delete(m.readers, i, i+1)
}

// evict lets some of what is kept go.
func (m *channelModel) evict(t *rapid.T) {
	held := m.reg.Holdings()
	least := 2*held.Active + 1 // or a running response would have to go
	if held.Total <= least {
		t.Skip("nothing can be evicted")
	}
	before := make(map[*fanout.Response]bool)
	for r := range m.texts {
		before[r] = isGone(r)
	}
	m.reg.Limit(rapid.IntRange(least, held.Total).Draw(t, "limit"))
	m.reg.Limit(0)
	for r := range m.texts {
		m.evicted[r] = m.evicted[r] || isGone(r) && !before[r]
	}
}

// current checks which response began last of those that run.
func (m *channelModel) current(t *rapid.T) {
	var want *fanout.Response
	if len(m.running) > 0 {
		want = m.running[len(m.running)-1]
	}
	if got := m.reg.Current("chat", alice); got != want {
		t.Fatalf("current is %p, want %p of %v", got, want, m.running)
	}
}

// bubbled runs a property in a bubble of its own, where time passes at once.
func bubbled(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }() // rapid takes it in its own goroutine only
			property(rt)
		})
		switch fmt.Sprintf("%T", failure) {
		case "<nil>":
		case "rapid.invalidData": // is told from a failure by where it comes from
			panic(failure)
		default:
			panic(failure)
		}
	})
}

// Whatever happens on a channel, and wherever its readers come back: they are
// told everything once and in one order, or that something is lost.
func TestAChannelIsWhatTheModelIs(t *testing.T) {
	bubbled(t, func(rt *rapid.T) {
		m := &channelModel{t: t, reg: fanout.NewRegistry(), texts: make(map[*fanout.Response][]string), evicted: make(map[*fanout.Response]bool)}
		rt.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "append": m.append, "append more": m.append, "end": m.end,
			"join": m.join, "come back": m.comeBack, "read": m.read, "read more": m.read, "evict": m.evict,
			"current": m.current,
			"leave": func(rt *rapid.T) {
				i, _ := m.aReader(rt)
				m.leave(i)
			},
			"pass time": func(rt *rapid.T) {
				after(time.Duration(rapid.Int64Range(0, int64(keep)).Draw(rt, "time")))
			},
			"": func(rt *rapid.T) {
				got := m.reg.Holdings()
				if total, active := m.reg.Accounted(); got.Total != total || got.Active != active {
					rt.Fatalf("the account says %d and %d, held are %d and %d", got.Total, got.Active, total, active)
				}
			},
		})
		for len(m.readers) > 0 {
			m.leave(0)
		}
		for _, r := range m.running {
			r.End(done)
		}
		after(time.Hour * 2)
		wantNothing(t, m.reg)
	})
}
