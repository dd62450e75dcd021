package fanout

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// Subscription is the place of one reader in a channel: which notices it has
// had, and its cursor in each response that it follows. It belongs to one
// goroutine at a time and never blocks.
type Subscription struct {
	channel *channel
	frames  bool         // the responses' own events too
	seq     uint64       // the last notice that the reader has had
	joined  []*Response  // what was running on joining and the reader does not know of yet
	open    []*following // in order of beginning
}

// following is the cursor in one response of a channel.
type following struct {
	response *Response
	cursor   *Cursor
	read     bool // scratch of Read
}

// Subscribe follows a channel; with frames, the events of its responses too.
// With from, an id that Position gave, it goes on after what was had; else it
// begins with the responses that are running. The reader must Close. The
// errors are ErrBadCursor, and ErrExpired where something is no longer kept
// that came after from.
func (reg *Registry) Subscribe(name string, as Access, frames bool, from string) (*Subscription, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	at := position{seq: reg.seq}
	if from != "" {
		var err error
		if at, err = reg.parsePosition(from); err != nil {
			return nil, err
		}
	}
	ch := reg.channelOf(channelName{as, name})
	s := &Subscription{channel: ch, frames: frames, seq: at.seq}
	ch.followers++
	if err := s.begin(at, from == ""); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// begin follows the responses that were running at a place in the channel. The
// caller holds registry.mu.
func (s *Subscription) begin(at position, anew bool) error {
	if err := s.err(); err != nil {
		return err
	}
	ended := make(map[*Response]bool)
	for _, n := range s.channel.notices {
		if n.terminal != nil && n.seq <= at.seq {
			ended[n.response] = true
		}
	}
	for _, n := range s.channel.notices {
		if n.terminal != nil || n.seq > at.seq || ended[n.response] {
			continue
		}
		if anew {
			s.joined = append(s.joined, n.response)
		}
		if err := s.follow(n.response, at.indexes[n.response.id]); err != nil {
			return err
		}
	}
	return nil
}

// follow opens the cursor in a response. The caller holds registry.mu.
func (s *Subscription) follow(r *Response, index int) error {
	if !s.frames || s.of(r) != nil {
		return nil
	}
	cursor, err := r.attach(index)
	if err != nil {
		return err
	}
	s.open = append(s.open, &following{response: r, cursor: cursor})
	return nil
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

	seq       uint64     // of the notice; 0 for the start of what was running on joining
	following *following // of Events
}

// Read returns what the reader has not had yet, in order: the beginning of a
// response comes before its events, and its end after them. Where Err is not
// nil, it returns nothing.
func (s *Subscription) Read() []Item {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if s.err() != nil {
		return nil
	}
	var items []Item
	for _, r := range s.joined {
		items = append(items, Item{Response: r, Started: true})
	}
	for _, n := range s.news() {
		if n.terminal != nil {
			items = appendEvents(items, s.of(n.response))
			items = append(items, Item{Response: n.response, Ended: true, Terminal: n.terminal, seq: n.seq})
			continue
		}
		_ = s.follow(n.response, 0) // the place before the first event is always there
		items = append(items, Item{Response: n.response, Started: true, seq: n.seq})
	}
	for _, f := range s.open {
		if !f.read {
			items = appendEvents(items, f)
		}
		f.read = false
	}
	return items
}

// Err returns ErrExpired once a response of the channel is no longer kept of
// which the reader has not had everything: it must begin anew.
func (s *Subscription) Err() error {
	s.channel.registry.mu.Lock()
	defer s.channel.registry.mu.Unlock()
	return s.err()
}

// err is Err for who holds registry.mu.
func (s *Subscription) err() error {
	if s.channel.lost > s.seq {
		return ErrExpired
	}
	return nil
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

// news returns the notices that the reader has not had. The caller holds
// registry.mu.
func (s *Subscription) news() []notice {
	notices := s.channel.notices
	for i := len(notices); i > 0; i-- {
		if notices[i-1].seq <= s.seq {
			return notices[i:]
		}
	}
	return notices
}

// Had tells that the reader has had an item: of one with Events, those up to
// index. Read returns an item until then. Had reports whether Position is now
// a place to go on from.
func (s *Subscription) Had(item *Item, index int) bool {
	switch {
	case item.Started && len(s.joined) > 0:
		s.joined = s.joined[1:] // they come first
	case item.Started:
		s.seq = item.seq
	case item.Ended:
		s.leave(item.Response)
		s.seq = item.seq
	default:
		item.following.cursor.Advance(index)
	}
	return s.placed()
}

// placed reports whether a position can tell what the reader has had: not
// before it knows of all that was running on joining.
func (s *Subscription) placed() bool { return len(s.joined) == 0 }

// leave ends the following of one response.
func (s *Subscription) leave(r *Response) {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for i, f := range s.open {
		if f.response == r {
			s.open = append(s.open[:i], s.open[i+1:]...)
			r.left()
			return
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	reg := s.channel.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	s.close()
}

// close is Close for who holds registry.mu.
func (s *Subscription) close() {
	for _, f := range s.open {
		f.response.left()
	}
	s.open = nil
	s.channel.followers--
	s.channel.registry.tidy(s.channel)
}

// Changed returns a channel that is closed when there may be something new.
// It must be taken before Read, so that nothing is missed between.
func (s *Subscription) Changed() <-chan struct{} {
	ch := s.channel
	ch.registry.mu.Lock()
	defer ch.registry.mu.Unlock()
	if s.frames {
		return ch.changed.wait()
	}
	return ch.noticed.wait()
}
