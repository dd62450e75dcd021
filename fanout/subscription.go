package fanout

import (
	"cmp"
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Subscription is the position of one reader in a channel. It belongs to one
// goroutine at a time and never blocks.
//
// A reader that joins is first told what is running, as parts: where each of
// those responses stands, and what it has said so far. From then on it reads
// the journal.
type Subscription struct {
	channel *channel
	frames  bool   // the responses' own events too
	at      uint64 // the last position that the reader has had
	parts   []part // what was running at it, while the reader has not had all of that
	joined  int    // how much of it the reader has had: starts, then events
	steps   int    // how much of it there is
	items   []Item

	published uint64 // at, as others may know it; guarded by channel.mu
}

// part is what a response has said when a reader joins its channel.
type part struct {
	response *Response
	index    int // of its last event
}

// Item is one thing to tell a reader of a channel: that a response has
// started or has ended, or some of its events.
type Item struct {
	Response *Response
	// Started and Ended tell which notice it is; neither: Events.
	Started, Ended bool
	// Terminal is how it has ended; nil where Ended is false.
	Terminal *event.Event
	// Events is a part of the response's log. The reader calls Had for each
	// event that it has had.
	Events Batch

	before uint64 // the position before it; of a part, how much the reader has joined before
	entry  entry  // of the journal, or what would be there for a part
}

const (
	// maxItems is how many items Read returns at once.
	maxItems = 64
	// fewItems is for how many items a reader that has caught up keeps memory.
	fewItems = 4
	// maxEntries is how many entries of a journal Read looks at with its lock
	// held.
	maxEntries = 1024
)

// Subscribe follows a channel; with frames, the events of its responses too.
// With from, an id that Position gave, it goes on after what was had; else it
// begins with the responses that are running. The reader must Close. The
// errors are ErrBadCursor, and ErrExpired where something is no longer kept
// that came after from.
func (reg *Registry) Subscribe(name string, as Access, frames bool, from string) (*Subscription, error) {
	var at position
	if from != "" {
		var err error
		if at, err = reg.parsePosition(from); err != nil {
			return nil, err
		}
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	ch := reg.channelLocked(nameOf(as, name))
	s := &Subscription{channel: ch, frames: frames}
	if err := s.begin(at, from == ""); err != nil {
		reg.tidyLocked(ch)
		return nil, err
	}
	return s, nil
}

// begin enters the channel at a position, or anew.
func (s *Subscription) begin(at position, anew bool) error {
	ch := s.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if anew {
		at = position{at: ch.journal.head}
	}
	switch {
	case at.at > ch.journal.head:
		return ErrBadCursor
	case ch.hasLostLocked(at.at, s.frames, at.joined >= 0 && !anew):
		return ErrExpired
	}
	s.at, s.published = at.at, at.at
	if at.joined >= 0 {
		s.parts, s.joined = ch.runningAtLocked(at.at), at.joined
		s.steps = len(s.parts)
		for i := 0; i < len(s.parts) && s.frames; i++ {
			s.steps += s.parts[i].index
		}
		if s.joined > s.steps && s.frames {
			return ErrBadCursor
		}
		s.join(at.joined)
	}
	ch.subs[s] = struct{}{}
	if s.frames {
		ch.frames++
	}
	return nil
}

// join tells how much the reader has had of what was running when it joined.
func (s *Subscription) join(steps int) {
	if s.joined = steps; steps >= s.steps {
		s.parts = nil
	}
}

// runningAtLocked returns what was running at a position, in order of
// beginning, and where it stood then.
func (ch *channel) runningAtLocked(at uint64) []part {
	var parts []part
	if at == ch.journal.head {
		for e := ch.running.Front(); e != nil; e = e.Next() {
			r := e.Value.(*Response)
			parts = append(parts, part{r, r.in.said})
		}
		return parts
	}
	stood := make(map[uint32]int) // where those stood that have said something since
	ch.journal.after(at, func(e entry) bool {
		if _, known := stood[e.response]; !known && e.kind == said {
			stood[e.response] = e.from
		}
		return true
	})
	for _, r := range ch.listed {
		if r.in.began > at || (r.in.over > 0 && r.in.over <= at) {
			continue
		}
		index, isLater := stood[r.in.number]
		if !isLater {
			index = r.in.said
		}
		parts = append(parts, part{r, index})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.response.in.number, b.response.in.number) })
	return parts
}

// Read returns what the reader has not had yet, in order, but not everything at
// once: until it returns nothing, there may be more. What it returns is valid
// until the next call. Where Err is not nil, it returns nothing.
func (s *Subscription) Read() []Item {
	clear(s.items)
	s.items = s.items[:0]
	if s.parts != nil {
		s.readParts()
		return s.items
	}
	for s.readJournal() && len(s.items) == 0 {
	}
	if len(s.items) == 0 && cap(s.items) > fewItems {
		s.items = nil // it has caught up, and may be idle for long
	}
	return s.items
}

// readParts reads what was running when the reader joined.
func (s *Subscription) readParts() {
	if s.Err() != nil {
		return
	}
	for i := s.joined; i < len(s.parts) && len(s.items) < maxItems; i++ {
		s.items = append(s.items, Item{Response: s.parts[i].response, Started: true, before: uint64(i), entry: entry{kind: started}}) //nolint:gosec // an index
	}
	if !s.frames {
		return
	}
	before := len(s.parts)
	for i := 0; i < len(s.parts) && len(s.items) < maxItems; i++ {
		p := s.parts[i]
		if from := max(0, s.joined-before); from < p.index {
			item := Item{Response: p.response, before: uint64(before + from), entry: entry{from: from, n: p.index - from}} //nolint:gosec // counts
			item.fill()
			item.Events.Behind = s.steps - s.joined
			s.items = append(s.items, item)
		}
		before += p.index
	}
}

// readJournal reads some of the journal. It reports whether there is more.
func (s *Subscription) readJournal() (more bool) {
	ch := s.channel
	ch.mu.Lock()
	s.published = s.at
	if ch.hasLostLocked(s.at, s.frames, false) {
		ch.mu.Unlock()
		return false
	}
	looked := 0
	ch.journal.after(s.at, func(e entry) bool {
		if looked++; looked > maxEntries || len(s.items) == maxItems {
			more = true
			return false
		}
		if e.kind == said && !s.frames {
			if len(s.items) == 0 { // nothing to tell of it
				s.at = e.last()
			}
			return true
		}
		s.items = append(s.items, Item{Response: ch.listed[e.response], before: e.first - 1, entry: e})
		return true
	})
	if !more && len(s.items) == 0 {
		s.at = ch.journal.head // where nothing was told, another reader may have kept itself young
	}
	fresh := ch.fresh
	ch.mu.Unlock()
	for i := range s.items {
		s.items[i].fill()
		if fresh > s.items[i].before {
			s.items[i].Events.Behind = int(fresh - s.items[i].before) //nolint:gosec // events that are kept
		}
	}
	return more
}

// fill reads from the response what the entry tells of.
func (i *Item) fill() {
	switch e := &i.entry; e.kind {
	case started:
		i.Started = true
	case ended:
		i.Ended, i.Terminal = true, i.Response.announcedEnd()
	case said:
		i.Events = i.Response.between(e.from, e.from+e.n)
	}
}

// announcedEnd returns the terminal event that was announced.
func (r *Response) announcedEnd() *event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// Err returns ErrExpired once something of the channel is no longer kept that
// the reader has not had: it must begin anew.
func (s *Subscription) Err() error {
	ch := s.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.hasLostLocked(s.at, s.frames, s.parts != nil) {
		return ErrExpired
	}
	return nil
}

// Had tells that the reader has had an item: of one with Events, those up to
// index. Read returns an item until then.
func (s *Subscription) Had(item *Item, index int) {
	at := item.before + 1
	if item.entry.kind == said {
		at = item.before + uint64(index-item.entry.from) //nolint:gosec // an event after the first
	}
	if s.parts != nil {
		s.join(int(at)) //nolint:gosec // a count
		return
	}
	s.at = at
	if item.Ended && s.frames && s.publish(item.Response) {
		s.channel.registry.settle(item.Response)
	}
}

// publish lets others know where the reader is. It reports whether they have
// waited for that, because the time of a response is over.
func (s *Subscription) publish(r *Response) (awaited bool) {
	s.channel.mu.Lock()
	defer s.channel.mu.Unlock()
	s.published = s.at
	_, awaited = s.channel.overdue[r]
	return awaited
}

// Changed returns a channel that is closed as soon as there may be something to
// read: at once where there is already.
func (s *Subscription) Changed() <-chan struct{} {
	ch := s.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case s.parts != nil || ch.hasLostLocked(s.at, s.frames, false):
		return closed
	case s.frames && ch.journal.head > s.at, !s.frames && ch.notice > s.at:
		return closed
	case s.frames:
		return ch.changed.wait()
	default:
		return ch.noticed.wait()
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	ch, reg := s.channel, s.channel.registry
	alone, overdue := s.leave()
	for _, r := range alone {
		r.mu.Lock()
		r.leftLocked()
		r.mu.Unlock()
	}
	for _, r := range overdue {
		reg.settle(r)
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.tidyLocked(ch)
}

// leave takes the reader off the channel. It returns the responses that may have
// no readers any more: those that run, and those whose keep time is over.
func (s *Subscription) leave() (alone, overdue []*Response) {
	ch := s.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.subs, s)
	if !s.frames {
		return nil, nil
	}
	if ch.frames--; ch.frames == 0 {
		for e := ch.running.Front(); e != nil; e = e.Next() {
			alone = append(alone, e.Value.(*Response))
		}
	}
	for r := range ch.overdue {
		overdue = append(overdue, r)
	}
	return alone, overdue
}
