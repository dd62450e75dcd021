package deliver

import (
	"bufio"
	"errors"
	"maps"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// Config is what a Conn is made with.
type Config struct {
	ResponseID string
	Dialect    string
	// Resumable says that a client can come back for the rest: its ids name the
	// response.
	Resumable bool
	// Model returns the model of the response, empty while it is not known.
	Model func() string
	// Usage returns the token counts that are known by now, nil where there are
	// none.
	Usage func() *event.TokenUsage

	Metrics *observe.Metrics
	// WriteTimeout bounds one write that makes no progress; 0 is no bound.
	WriteTimeout time.Duration
	// Idle is what bounds writes already, nil where nothing does.
	Idle Overrider
	// Upload tells whether the request body has come, where the response may
	// begin before; nil where it may not.
	Upload interface{ Ended() bool }
	// Retry returns after how long a client is to come back; nil where none is
	// told to.
	Retry func() time.Duration
}

// Overrider bounds each write to a client, and can be told by how much:
// *caddyhttp.IdleTimeoutWriter is one.
type Overrider interface {
	Override(timeout time.Duration, minRate int64, maxChunk int) (restore func())
}

// Conn is the way to one client of a response. Nothing is committed before the
// first frame, so that a response which fails before it can still be answered
// with a status.
type Conn struct {
	Config

	state     connState
	head      atomic.Pointer[head] // of the upstream's response; nil before it is known
	wantUsage atomic.Bool          // the request asks for the token counts
	sent      atomic.Int64         // bytes of the body
	position  atomic.Int64         // index of the last event written
	dismissed atomic.Bool          // it is sent away because it takes too little
	watch     *timeouts.Watch      // beats after silence; nil where a producer's does

	multiplexed bool // the connection may have other streams

	mu      sync.Mutex // held by whatever writes
	encoder emit.Encoder
	w       http.ResponseWriter
	rc      *http.ResponseController
	aborts  bool         // after the terminal frame the connection must be aborted
	frames  *frameTail   // of a stream that passes and may have comments between its frames
	bounded bool         // Idle has been told the write timeout
	failure *event.Error // of a response that has failed before anything was committed
	err     error        // the first error of a write; nothing is written after it
	scratch event.Event  // scratch: an encoder takes a pointer
}

// head is the head of the upstream's response.
type head struct {
	status int
	header http.Header
}

// NewConn returns the way to the client of a request.
func NewConn(w http.ResponseWriter, r *http.Request, c Config) *Conn {
	return &Conn{Config: c, w: w, rc: http.NewResponseController(w), multiplexed: r.ProtoMajor > 1}
}

// ResponseID is the id of the response.
func (c *Conn) ResponseID() string { return c.Config.ResponseID }

// Position is the index of the last event that the client was sent.
func (c *Conn) Position() int64 { return c.position.Load() }

// Sent is how many bytes of the body the client was sent.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// WantUsage says that the request asks for the token counts.
func (c *Conn) WantUsage(wanted bool) { c.wantUsage.Store(wanted) }

// Beats lets a watch send heartbeats through Beat. It must be called before
// anything is written.
func (c *Conn) Beats(watch *timeouts.Watch) { c.watch = watch }

// frameBuffer is the size of the buffers in which frames are put together:
// what one read from upstream becomes usually fits, and leaves in one write.
const frameBuffer = 16 << 10

var frameWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, frameBuffer) }}

// write lets f put frames into a buffer, and writes and flushes it where f says
// so.
func (c *Conn) write(f func(bw *bufio.Writer) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch != nil {
		defer c.watch.Wrote()
	}
	return c.writeLocked(f)
}

// writeLocked is write; c.mu must be held.
func (c *Conn) writeLocked(f func(bw *bufio.Writer) bool) error {
	if c.err != nil {
		return c.err
	}
	bw := frameWriters.Get().(*bufio.Writer)
	bw.Reset(boundedWriter{c})
	if f(bw) {
		err := bw.Flush()
		if err == nil {
			err = c.flushLocked()
		}
		c.fail(err)
	}
	bw.Reset(nil)
	frameWriters.Put(bw)
	return c.err
}

// fail keeps the first error of a write. c.mu must be held.
func (c *Conn) fail(err error) {
	if err == nil || c.err != nil {
		return
	}
	c.err = err
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.dismissed.Load() {
		c.Metrics.SlowClient(event.SlowWriteTimeout)
	}
}

// commitLocked writes status and header of the stream, where nothing is
// committed yet. It reports whether the response is a stream of frames. c.mu
// must be held.
func (c *Conn) commitLocked(heartbeat bool) bool {
	if !c.state.commit(streaming, heartbeat) {
		return c.state.load() == streaming
	}
	h := c.w.Header()
	status := http.StatusOK
	if head := c.head.Load(); head != nil {
		replaceHeader(h, head.header)
		status = max(head.status, status)
	}
	for _, field := range bodyHeaders {
		h.Del(field)
	}
	c.encoder = newEncoder(c.Dialect, emit.Options{
		ResponseID: c.Config.ResponseID, BareIDs: !c.Resumable, IncludeUsage: c.wantUsage.Load(),
	})
	c.encoder.Header(h)
	c.beginBeforeUploadLocked()
	c.w.WriteHeader(status)
	return true
}

// newEncoder returns the encoder of a dialect that a request was allowed.
func newEncoder(dialect string, o emit.Options) emit.Encoder {
	encoder, err := emit.New(dialect, o)
	if err != nil {
		return emit.NewText(o) // a channel, whose frames are encoded elsewhere
	}
	return encoder
}

// Open commits the response before its first frame.
func (c *Conn) Open() error {
	return c.write(func(*bufio.Writer) bool { return c.commitLocked(false) })
}

// Beat sends a heartbeat. Where something is being written, there is no silence
// to break.
func (c *Conn) Beat() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if c.failure != nil || c.state.over() || c.state.load() == passing && !c.frames.betweenFrames() {
		return
	}
	_ = c.writeLocked(func(bw *bufio.Writer) bool {
		if c.state.load() != passing && !c.commitLocked(true) {
			return false
		}
		emit.Heartbeat(bw)
		return true
	})
}

// Seal keeps heartbeats from committing the response from now on, and reports
// whether one has.
func (c *Conn) Seal() (committed bool) { return c.state.seal() }

// Expect takes over what the upstream's response says before its body.
func (c *Conn) Expect(status int, header http.Header) {
	c.head.Store(&head{status, header})
}

// Describe takes over what is known of the header of a response that another
// client has asked for; nil where it is not known yet. It is called by the
// goroutine of the client's request.
func (c *Conn) Describe(added http.Header) {
	if added == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.committed() {
		c.head.Store(&head{0, mergedHeader(c.w.Header(), added)})
	}
}

// Inform sends an informational response (1xx) while nothing is committed.
func (c *Conn) Inform(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.committed() {
		return
	}
	h := c.w.Header()
	own := maps.Clone(h)
	replaceHeader(h, header)
	c.w.WriteHeader(status)
	replaceHeader(h, own)
}

// Fate is what a client did to a response that is bound to it; empty where it
// stayed to the end.
func (c *Conn) Fate(r *http.Request) event.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dismissed.Load() || errors.Is(c.err, os.ErrDeadlineExceeded):
		return event.OutcomeSlowClient
	case c.err != nil, r.Context().Err() != nil && c.state.load() != ended:
		return event.OutcomeClientGone
	}
	return ""
}

// Interface guards
var _ observe.Reader = (*Conn)(nil)
