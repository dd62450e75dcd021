package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"bufio"
	"errors"
	"maps"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// client is one reader of a response: a place in its log, the encoder of its
// dialect, and the connection that the frames go to.
//
// Nothing is committed before the first frame, so that a response which fails
// before it can still be answered with a status.
type client struct {
	id           string // of the response
	dialect      string
	cursor       *fanout.Cursor
	model        func() string // of the response, once there is output
	wantUsage    atomic.Bool   // the request asks for the token counts
	sent         atomic.Int64  // bytes of the body
	position     atomic.Int64  // index of the last event written
	metrics      *metricSet
	record       *record                      // of the response that he asked for; nil for who follows one
	writeTimeout time.Duration                // of one write without progress; 0 or less is none
	idle         *caddyhttp.IdleTimeoutWriter // sees to the write timeout; nil where the client itself does

	drain  *drainer
	member *drain.Member       // of those who are drained together
	asked  bool                // the request asks for a stream
	gone   <-chan struct{}     // closed when the response turns out to be none
	why    func() *event.Event // the terminal event for that

	multiplexed bool // he may have other streams on his connection

	dismissed atomic.Bool // he is sent away because he takes too little

	held bool          // the connection held the last write up; only for who writes
	took chan struct{} // gets a value when the client has taken what there was; nil where nobody waits for it

	// watch beats when the client has heard nothing for long. It is nil where
	// a producer's does that.
	watch *timeouts.Watch

	mu        sync.Mutex   // whoever holds it may write
	encoder   emit.Encoder // nil before the first frame
	w         http.ResponseWriter
	rc        *http.ResponseController
	header    http.Header // of the upstream's response; nil before it has come
	status    int         // likewise
	upload    *upload     // the request's body, where it may still come after the response has begun; nil where not
	committed bool        // a status has been written
	sealed    bool        // no heartbeat may commit it any more
	ended     bool        // the terminal frame has been written
	aborts    bool        // after the terminal frame the connection must be aborted
	left      bool        // he was sent away with a reconnect frame
	mirror    *mirror     // of a stream that passes through as it is
	passes    bool        // the response goes through as it came; nothing of the log does
	mute      bool        // and nothing of ours between
	replaying bool        // he has not been at the head of the log yet
	failure   *event.Error
	err       error       // the first error of a write; nothing is written after it
	event     event.Event // scratch: an encoder takes a pointer
}

// frameBuffer is the size of the buffers in which frames are put together:
// what one read from upstream becomes usually fits, and leaves in one write.
const frameBuffer = 16 << 10

var frameWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, frameBuffer) }}

// tally writes to a client and counts what it has been sent.
type tally struct{ *client }

// Write implements io.Writer.
func (t tally) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.count(n)
	return n, err
}

func (c *client) count(n int) {
	c.sent.Add(int64(n))
	c.metrics.clientBytes.Add(float64(n))
}

// pump writes all that the client has not had yet and flushes it.
func (c *client) pump(merge bool) error {
	batch := c.cursor.Read()
	if batch.Len() == 0 {
		return nil
	}
	return c.send(&batch, merge)
}

// send writes a batch and flushes it. The error is that of the connection.
// Where the response has failed and nothing is committed yet, it writes
// nothing and leaves the error in failure.
func (c *client) send(batch *fanout.Batch, merge bool) error {
	return c.write(func(bw *bufio.Writer) bool { return c.encode(bw, batch, merge) })
}

// write lets f put frames into a buffer, and writes and flushes it where f
// says so.
func (c *client) write(f func(bw *bufio.Writer) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch != nil {
		defer c.watch.Wrote()
	}
	return c.writeLocked(f)
}

// writeLocked is write for who holds mu.
func (c *client) writeLocked(f func(bw *bufio.Writer) bool) error {
	if c.err != nil {
		return c.err
	}
	bw := frameWriters.Get().(*bufio.Writer)
	bw.Reset(tally{c})
	c.armWrite()
	if f(bw) {
		if c.cursor != nil {
			c.position.Store(int64(c.cursor.Index()))
		}
		err := bw.Flush()
		if err == nil {
			err = c.rc.Flush()
		}
		c.fail(err)
	}
	c.disarmWrite()
	bw.Reset(nil)
	frameWriters.Put(bw)
	return c.err
}

// fail keeps the first error of a write. The caller holds mu.
func (c *client) fail(err error) {
	if err == nil || c.err != nil {
		return
	}
	c.err = err
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.dismissed.Load() {
		c.metrics.slowClients.WithLabelValues("write_timeout").Inc()
	}
}

// limitWrites makes the write timeout count for a client. Caddy sets a deadline
// before every write and flush anyway: it is told to set ours, so that a token
// does not cost two more.
func (c *client) limitWrites(r *http.Request, timeout time.Duration) {
	c.writeTimeout = timeout
	// with a minimum rate, Caddy's deadline says nothing of one write
	if _, idle := caddyhttp.IdleTimeoutsFromContext(r.Context()); idle != nil && idle.Deadline.MinRate == 0 {
		c.idle = idle
	}
}

// armWrite bounds the next write. It is called by who writes, with mu held, and
// disarmWrite after it: on HTTP/2 an armed deadline resets a stream that is
// merely silent.
func (c *client) armWrite() {
	switch {
	case c.writeTimeout <= 0:
	case c.idle == nil:
		_ = c.rc.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	case c.writeTimeout < c.idle.Deadline.Timeout:
		c.idle.Override(c.writeTimeout, 0, 0) // to the end of the request: all that follows is ours
	}
}

func (c *client) disarmWrite() {
	if c.writeTimeout > 0 && c.idle == nil && c.err == nil {
		_ = c.rc.SetWriteDeadline(time.Time{})
	}
}

// maxMerge is how much text a merged frame holds: readers of lines give up at
// 64 KiB.
const maxMerge = 32 << 10

// encode encodes the batch and reports whether there is something to send. The
// caller holds mu.
func (c *client) encode(bw *bufio.Writer, batch *fanout.Batch, merge bool) bool {
	bound := 0
	if merge {
		bound = maxMerge
	}
	for {
		index, ev, ok := batch.Next(bound)
		if !ok {
			return true
		}
		if !c.committed && c.refusable(&ev) {
			c.cursor.Advance(index)
			return false
		}
		c.commit()
		if c.event.Kind == 0 {
			c.introduce()
		}
		c.event = ev
		c.encoder.Encode(bw, index, &c.event)
		c.cursor.Advance(index)
		if c.ended = ev.Kind.IsTerminal(); c.ended {
			c.aborts = emit.Aborts(c.encoder, &c.event) || ev.Err == drained.Err
		}
	}
}

// introduce tells the encoder what is known once there is a first event. The
// caller holds mu.
func (c *client) introduce() {
	if ms, ok := c.encoder.(emit.ModelSetter); ok && c.model != nil {
		ms.SetModel(c.model())
	}
}

// refusable reports whether an event ends the response in a way that is told
// by a status, and takes it as the failure.
func (c *client) refusable(ev *event.Event) bool {
	switch {
	case ev.Kind == event.Failed:
		c.failure = ev.Err
	case ev.Kind == event.Done && ev.Result.Finish == event.FinishCancelled:
		c.failure = errCancelledEarly
	}
	return c.failure != nil
}

// errCancelledEarly is the answer to a request whose response was cancelled before
// it had begun.
var errCancelledEarly = &event.Error{
	Code: event.CodeCancelled, Status: statusClientClosedRequest, Message: "the response was cancelled",
}

// statusClientClosedRequest is the status that nginx gave this meaning and
// Caddy uses as well.
const statusClientClosedRequest = 499

// commit sends status and header of the stream. The caller holds mu.
func (c *client) commit() {
	if c.committed {
		return
	}
	c.committed = true
	h := c.w.Header()
	if c.header != nil {
		replaceHeader(h, c.header)
	}
	for _, field := range bodyHeaders {
		h.Del(field)
	}
	c.encoder = newEncoder(c.dialect, emit.Options{ResponseID: c.id, IncludeUsage: c.wantUsage.Load()})
	c.encoder.Header(h)
	c.interleave()
	c.w.WriteHeader(max(c.status, http.StatusOK))
}

// newEncoder returns the encoder of a dialect that a request was allowed.
func newEncoder(dialect string, o emit.Options) emit.Encoder {
	encoder, err := emit.New(dialect, o)
	if err != nil {
		return emit.NewText("") // a channel, whose frames are encoded elsewhere
	}
	return encoder
}

// open commits the response before its first frame.
func (c *client) open() error {
	return c.write(func(*bufio.Writer) bool { c.commit(); return true })
}

// expect takes over what the upstream's response says before its body.
func (c *client) expect(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.header = status, header
}

// describe takes over what is known of the header of a response that another
// client has asked for; nil where it is not known yet.
func (c *client) describe(added http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if added != nil && !c.committed {
		c.header = mergedHeader(c.w.Header(), added)
	}
}

// pass implements outlet.
func (c *client) pass(to phase, status int, header http.Header, stream bool) http.ResponseWriter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committed {
		return nil
	}
	c.committed, c.passes, c.mute = true, true, to == passing
	replaceHeader(c.w.Header(), header)
	if stream {
		c.interleave()
	}
	c.w.WriteHeader(status)
	if stream {
		c.mirror = newMirror(c, header.Get("Content-Type"))
		return c.mirror
	}
	return c.w
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
	replaceHeader(h, header)
	c.w.WriteHeader(status)
	replaceHeader(h, own)
}

// adopt takes over the header fields that a handler has set without sending a
// response: error routes see them.
func (c *client) adopt(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.committed && header != nil {
		replaceHeader(c.w.Header(), header)
	}
}

// refuse answers with the failure of a response that has sent nothing.
func (c *client) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed, c.ended = true, true
	if c.failure.Status == http.StatusServiceUnavailable && c.drain != nil {
		setRetryAfter(c.w.Header(), c.drain.Retry())
	}
	refuse(c.w, c.dialect, c.failure, c.id)
}
