package fanout

import (
	"strconv"
	"strings"
)

// Subscription is the place of one reader in a Channel: which notices it has
// had, and its cursor in each response that it follows. It belongs to one
// goroutine at a time and never blocks.
type Subscription struct {
	channel *Channel
	frames  bool // the responses' own events too
	seq     uint64
	open    []*following   // in order of beginning
	joined  []*Response    // running ones to tell of on joining
	had     map[string]int // indexes that a returning reader had of responses begun after seq
}

// following is the cursor in one response of a channel.
type following struct {
	response *Response
	cursor   *Cursor
	told     bool // the reader knows that the response has started
	read     bool // scratch of Read
}

// position is a place in a channel as a reader brings it back: all notices up
// to seq, and some events of the responses that were running then.
type position struct {
	seq     uint64
	indexes map[string]int
}

// Subscribe follows a channel; with frames, the events of its responses too.
// With from, an id that Position gave, it goes on after what was had; else it
// begins with the responses that are running. The reader must Close. The
// errors are ErrBadCursor, and ErrExpired where something is no longer kept
// that came after from.
func (reg *Registry) Subscribe(name string, as Access, frames bool, from string) (*Subscription, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	ch := reg.channelOf(channelName{as, name})
	s := &Subscription{channel: ch, frames: frames, seq: reg.seq}
	var at position
	if from != "" {
		var err error
		if at, err = reg.parsePosition(from); err == nil && at.seq < ch.lost {
			err = ErrExpired
		}
		if err != nil {
			reg.tidy(ch)
			return nil, err
		}
		s.seq, s.had = at.seq, at.indexes
	}
	ended := make(map[*Response]bool)
	for _, n := range ch.notices {
		if n.Terminal != nil && n.seq <= s.seq {
			ended[n.Response] = true
		}
	}
	for _, n := range ch.notices {
		if n.Terminal != nil || n.seq > s.seq || ended[n.Response] {
			continue
		}
		if from == "" {
			s.joined = append(s.joined, n.Response)
		}
		if err := s.follow(n.Response, at.indexes[n.Response.id]); err != nil {
			s.leave()
			reg.tidy(ch)
			return nil, err
		}
	}
	ch.followers++
	return s, nil
}

// follow opens the cursor in a response. The caller holds registry.mu.
func (s *Subscription) follow(r *Response, index int) error {
	if !s.frames {
		return nil
	}
	cursor, err := r.Open(index)
	if err != nil {
		return err
	}
	r.readers++
	if r.stage == running {
		r.disarm()
	}
	_, told := s.had[r.id]
	s.open = append(s.open, &following{response: r, cursor: cursor, told: told})
	return nil
}

// Item is one thing to tell a reader of a channel: that a response has
// started or has ended, or some of its events.
type Item struct {
	Response *Response
	// Started and Ended tell which notice it is; neither: Events.
	Started, Ended bool
	// Events is a part of the response's log. The reader calls Had for each
	// event that it has had.
	Events Batch

	seq       uint64 // of the notice; 0 where more like it follow, and only the last is a place to go on from
	following *following
}

// Read returns what the reader has not had yet, in order: the beginning of a
// response comes before its events, and its end after them.
func (s *Subscription) Read() []Item {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	var items []Item
	for i, r := range s.joined {
		item := Item{Response: r, Started: true, following: s.of(r)}
		if i == len(s.joined)-1 {
			item.seq = s.seq
		}
		items = append(items, item)
	}
	s.joined = nil
	for _, n := range s.news() {
		if n.Terminal != nil {
			items = appendEvents(items, s.of(n.Response))
			items = append(items, Item{Response: n.Response, Ended: true, seq: n.seq})
			continue
		}
		index, had := s.had[n.Response.id]
		if s.of(n.Response) == nil && s.follow(n.Response, index) == nil && !had {
			items = append(items, Item{Response: n.Response, Started: true, seq: n.seq, following: s.of(n.Response)})
		}
	}
	for _, f := range s.open {
		if !f.read {
			items = appendEvents(items, f)
		}
		f.read = false
	}
	return items
}

// appendEvents appends what the reader has not had of a response.
func appendEvents(items []Item, f *following) []Item {
	if f == nil {
		return items
	}
	f.read = true
	if batch := f.cursor.Read(); batch.Len() > 0 {
		items = append(items, Item{Response: f.response, Events: batch, following: f})
	}
	return items
}

// of returns the cursor in a response, nil where it is not followed.
func (s *Subscription) of(r *Response) *following {
	for _, f := range s.open {
		if f.response == r {
			return f
		}
	}
	return nil
}

// news returns the notices that the reader has not had. The caller holds
// registry.mu.
func (s *Subscription) news() []Notice {
	notices := s.channel.notices
	for i, n := range notices {
		if n.seq > s.seq {
			return notices[i:]
		}
	}
	return nil
}

// Had tells that the reader has had an item: of one with Events, those up to
// index. It reports whether Position is now a place to go on from.
func (s *Subscription) Had(item *Item, index int) bool {
	if item.following != nil && !item.Started {
		item.following.cursor.Advance(index)
		return true
	}
	if item.following != nil {
		item.following.told = true
	}
	s.seq = max(s.seq, item.seq)
	if item.Ended {
		s.channel.registry.mu.Lock()
		s.close(item.Response)
		s.channel.registry.mu.Unlock()
	}
	return item.seq > 0
}

// close ends the following of one response. The caller holds registry.mu.
func (s *Subscription) close(r *Response) {
	for i, f := range s.open {
		if f.response == r {
			s.open = append(s.open[:i], s.open[i+1:]...)
			r.left()
			return
		}
	}
}

func (s *Subscription) leave() {
	for _, f := range s.open {
		f.response.left()
	}
	s.open = nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	s.leave()
	s.channel.followers--
	reg.tidy(s.channel)
}

// Changed returns a channel that is closed when there may be something new.
// It must be taken before Read, so that nothing is missed between.
func (s *Subscription) Changed() <-chan struct{} {
	ch := s.channel
	ch.registry.mu.Lock()
	defer ch.registry.mu.Unlock()
	if ch.changed == nil {
		ch.changed = make(chan struct{})
	}
	return ch.changed
}

// Position returns an id of where the reader is: from it Subscribe goes on.
func (s *Subscription) Position() string {
	var b strings.Builder
	b.WriteString(s.channel.registry.epoch)
	b.WriteByte('.')
	b.WriteString(strconv.FormatUint(s.seq, 10))
	for _, f := range s.open {
		if !f.told {
			continue
		}
		b.WriteByte('.')
		b.WriteString(f.response.id)
		b.WriteByte('-')
		b.WriteString(strconv.Itoa(f.cursor.Index()))
	}
	return b.String()
}

// maxPosition bounds the id that a reader of a channel brings back, in bytes.
const maxPosition = 64 << 10

// parsePosition reads an id that Position gave. The errors are ErrBadCursor,
// and ErrExpired for an id of another registry: that of a process which is no
// more.
func (reg *Registry) parsePosition(s string) (position, error) {
	parts := strings.Split(s, ".")
	if len(s) > maxPosition || len(parts) < 2 || !IsID(parts[0]) {
		return position{}, ErrBadCursor
	}
	seq, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != parts[1] {
		return position{}, ErrBadCursor
	}
	at := position{seq: seq, indexes: make(map[string]int)}
	for _, part := range parts[2:] {
		id, index, err := ParseEventID(strings.Replace(part, "-", ":", 1))
		if err != nil {
			return position{}, err
		}
		at.indexes[id] = index
	}
	if parts[0] != reg.epoch {
		return position{}, ErrExpired
	}
	if seq > reg.seq {
		return position{}, ErrBadCursor
	}
	return at, nil
}
