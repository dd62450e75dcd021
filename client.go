package llmstream

import (
	"bufio"
	"maps"
	"net/http"
	"sync"

	"github.com/caddy-llmstream/caddy-llmstream/emit"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// client is one reader of a response: a place in its log, the encoder of its
// dialect, and the connection that the frames go to.
//
// Nothing is committed before the first frame, so that a response which fails
// before it can still be answered with a status.
type client struct {
	cursor  *fanout.Cursor
	encoder emit.Encoder

	mu        sync.Mutex // whoever holds it may write
	w         http.ResponseWriter
	rc        *http.ResponseController
	header    http.Header // of the upstream's response; nil before it has come
	status    int         // likewise
	committed bool        // a status has been written
	ended     bool        // the terminal frame has been written
	failure   *provider.Error
	err       error          // the first error of a write; nothing is written after it
	event     provider.Event // scratch: an encoder takes a pointer
}

// frameBuffer is the size of the buffers in which frames are put together:
// what one read from upstream becomes usually fits, and leaves in one write.
const frameBuffer = 16 << 10

var frameWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, frameBuffer) }}

// pump writes all that the client has not had yet and flushes it. The error is
// that of the connection. Where the response has failed and nothing is
// committed yet, it writes nothing and leaves the error in failure.
func (c *client) pump(merge bool) error {
	batch := c.cursor.Read()
	if batch.Len() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	bw := frameWriters.Get().(*bufio.Writer)
	bw.Reset(c.w)
	c.err = c.write(bw, &batch, merge)
	bw.Reset(nil)
	frameWriters.Put(bw)
	return c.err
}

// write encodes the batch. The caller holds mu.
func (c *client) write(bw *bufio.Writer, batch *fanout.Batch, merge bool) error {
	for {
		index, ev, ok := batch.Next(merge)
		if !ok {
			break
		}
		if ev.Kind == provider.Failed && !c.committed {
			c.failure = ev.Err
			c.cursor.Advance(index)
			return nil
		}
		c.commit()
		c.event = ev
		c.encoder.Encode(bw, index, &c.event)
		c.cursor.Advance(index)
		c.ended = ev.Kind.IsTerminal()
	}
	if err := bw.Flush(); err != nil {
		return err
	}
	return c.rc.Flush()
}

// commit sends status and header of the stream. The caller holds mu.
func (c *client) commit() {
	if c.committed {
		return
	}
	c.committed = true
	h := c.w.Header()
	if c.header != nil {
		clear(h)
		maps.Copy(h, c.header)
	}
	for _, field := range bodyHeaders {
		h.Del(field)
	}
	c.encoder.Header(h)
	c.w.WriteHeader(max(c.status, http.StatusOK))
}

// expect takes over what the upstream's response says before its body.
func (c *client) expect(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.header = status, header
}

// pass sends status and header of a response that goes through as it is.
func (c *client) pass(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = true
	h := c.w.Header()
	clear(h)
	maps.Copy(h, header)
	c.w.WriteHeader(status)
}

// inform sends an informational response (1xx) while nothing is committed.
func (c *client) inform(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committed {
		return
	}
	h := c.w.Header()
	own := maps.Clone(h)
	clear(h)
	maps.Copy(h, header)
	c.w.WriteHeader(status)
	clear(h)
	maps.Copy(h, own)
}

// adopt takes over the header fields that a handler has set without sending a
// response: error routes see them.
func (c *client) adopt(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.committed {
		h := c.w.Header()
		clear(h)
		maps.Copy(h, header)
	}
}

// refuse answers with the failure of a response that has sent nothing.
func (c *client) refuse(dialect, responseID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed, c.ended = true, true
	refuse(c.w, dialect, c.failure, responseID)
}
