package fanout

// Cursor is the position of one reader in a Stream: the index of the last event
// that it has had. It belongs to one goroutine at a time, but needs none of its
// own: it never blocks, and Changed tells when to look again.
//
// A reader of the whole takes it piece by piece: Read locks the log for a
// moment, however long it is, and copies nothing; Batch.Next returns slices.
type Cursor struct {
	stream *Stream
	index  int
}

// Index returns the index of the last event that the reader has had.
func (c *Cursor) Index() int { return c.index }

// Read returns everything after the cursor, the terminal event included, and
// leaves the cursor where it is: Advance moves it.
func (c *Cursor) Read() (b Batch) {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.index > s.log.head() { // the terminal event was had as well
		b.last, b.to = c.index, c.index
		return b
	}
	s.log.since(&b, max(c.index, s.log.base))
	b.end = s.end
	b.Skipped = b.last - c.index
	b.Behind = max(0, s.fresh-c.index)
	if s.fresh > b.last {
		b.BehindBytes = s.log.table.seek(s.fresh-s.log.base).text - b.at.text
	}
	return b
}

// Advance moves the cursor to an event that the reader has had.
func (c *Cursor) Advance(index int) { c.index = index }

// Lag returns how many events the reader has not had yet.
func (c *Cursor) Lag() int {
	head, _ := c.stream.Head()
	return head - c.index
}

// Ended reports whether the reader has had the terminal event.
func (c *Cursor) Ended() bool {
	head, terminal := c.stream.Head()
	return terminal != nil && c.index >= head
}

// Changed returns a channel that is closed as soon as there is something to
// read: at once where there is already.
func (c *Cursor) Changed() <-chan struct{} {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.headLocked() > c.index {
		return closed
	}
	return s.changed.wait()
}
