package relay

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
)

// Memory is the budget of what is held for requests and responses together.
type Memory interface {
	// Reserve takes n bytes. The error says that there is no room for them.
	Reserve(n int) error
	// Release gives n bytes back.
	Release(n int)
}

// body is a request body on its way to the backend. It is read within a time
// that grows with what has come, so that neither silence nor dripping holds
// anything for long, and looked through for what the request asks.
//
// A part of it may be read, and held, before the request takes a place. What is
// held is counted as it arrives, whatever length was declared.
type body struct {
	src    io.ReadCloser
	rc     *http.ResponseController
	limit  time.Duration // 0 is none
	began  time.Time
	memory Memory

	expired func() // called when the time is over; nil where nothing asks

	ended atomic.Bool
	due   atomic.Int64 // the deadline of the read that is under way, in ns after began; 0 where there is none

	// What makes the call reads in a goroutine of its own, and may do so when
	// the request has had its answer.
	mu      sync.Mutex
	scan    *bodyScan
	scanned func(asked) // called once, when the body was looked through; nil where nothing asks
	got     int64
	held    []byte // read, and not handed on
	err     error  // that came after held
}

// bytesPerSecond is how fast a body has to come once its first time is over.
const bytesPerSecond = 16 << 10

// errBodyTimeout is the error of a body that has not come in time.
var errBodyTimeout = fmt.Errorf("reading the request body: %w", ingest.ErrRequestTimeout)

// newBody takes over the body of a request.
func (rt *Route) newBody(q *Request) *body {
	b := &body{
		src: q.Body, rc: http.NewResponseController(q.W), limit: rt.ReadTimeout, began: time.Now(), memory: rt.Memory,
		scan: newBodyScan(q.Header.Get("Content-Encoding")),
	}
	if q.Body == nil || q.Body == http.NoBody {
		b.src, b.err = http.NoBody, io.EOF
		b.finish()
	}
	return b
}

// Ended reports whether the body was read to its end. It may be called from any
// goroutine.
func (b *body) Ended() bool { return b.ended.Load() }

// Late reports whether the body has not come in time. It may be called from any
// goroutine, and does not wait for one that reads to notice: over HTTP/1.1 the
// context of the request ends before its read does.
func (b *body) Late() bool {
	due := time.Duration(b.due.Load()) // by the monotonic clock, as the deadline itself: the other may lag
	return due != 0 && !b.Ended() && time.Since(b.began) >= due
}

// How much is read of a body at a time, in bytes: as much as has come, so that a
// client which has sent little holds little.
const (
	minRead = 512
	maxRead = 32 << 10
)

// hold reads the body to its end, or as far as limit bytes, and holds what has
// come. The error is one that the client is told, or ErrBody.
func (b *body) hold(limit int64) error {
	for b.err == nil && int64(len(b.held)) < limit { // nothing else reads yet
		free := len(b.held)
		room := int(min(int64(min(max(free, minRead), maxRead)), limit-int64(free)))
		if err := b.memory.Reserve(room); err != nil {
			return errFull
		}
		b.held = append(b.held, make([]byte, room)...)
		n, err := b.read(b.held[free:])
		b.held, b.err = b.held[:free+n], err
		b.memory.Release(room - n)
	}
	switch {
	case b.err == nil || errors.Is(b.err, io.EOF):
		return nil
	case errors.Is(b.err, errBodyTimeout):
		return &deliver.RefusalError{Answer: event.TerminalRequestTimeout.Err}
	default:
		return fmt.Errorf("%w: %w", ErrBody, b.err)
	}
}

// ErrBody is the error of a request body that cannot be read; it wraps the reason.
var ErrBody = errors.New("reading the request body")

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if n, err := b.readHeld(p); n > 0 || err != nil {
		return n, err
	}
	n, err := b.read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	return n, err
}

// readHeld reads from what is held, or returns the error that came after it.
func (b *body) readHeld(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) == 0 {
		return 0, b.err
	}
	n := copy(p, b.held)
	if b.held = b.held[n:]; len(b.held) == 0 {
		b.held = nil // an empty rest would keep all of it
	}
	b.memory.Release(n)
	return n, nil
}

// read reads the next piece from the client.
func (b *body) read(p []byte) (int, error) {
	if b.limit > 0 {
		b.mu.Lock()
		allowed := b.limit + time.Duration(b.got/bytesPerSecond)*time.Second
		b.mu.Unlock()
		b.due.Store(int64(allowed))
		_ = b.rc.SetReadDeadline(b.began.Add(allowed))
	}
	n, err := b.src.Read(p)
	if b.look(p[:n]) || err != nil {
		b.finishScan()
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && b.limit > 0:
		if b.expired != nil {
			b.expired()
		}
		return n, errBodyTimeout
	case errors.Is(err, io.EOF):
		b.finish()
	}
	return n, err
}

// finish notes that the body was read to its end.
func (b *body) finish() {
	b.finishScan()
	b.ended.Store(true)
	if b.due.Swap(0) != 0 {
		_ = b.rc.SetReadDeadline(time.Time{}) // or net/http would take it for the client's leaving
	}
}

// look looks through a piece that has come, and reports whether the rest need not
// be.
func (b *body) look(p []byte) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got += int64(len(p))
	b.scan.Write(p)
	return b.scan.over
}

// finishScan tells what the body says, once.
func (b *body) finishScan() {
	b.mu.Lock()
	b.scan.end()
	tell, said := b.scanned, b.scan.said
	b.scanned = nil
	b.mu.Unlock()
	if tell != nil {
		tell(said)
	}
}

// says returns what the body says, as far as it was looked through.
func (b *body) says() asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.scan.said
}

// choices returns how many choices the request asks for, as far as it is known; 0
// where it is not.
func (b *body) choices() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.scan.said.choices > 0:
		return b.scan.said.choices
	case b.scan.over:
		return 1
	}
	return 0
}

// onScanned has f called once, when the body was looked through: at once where
// that is so already.
func (b *body) onScanned(f func(asked)) {
	b.mu.Lock()
	over, said := b.scan.over, b.scan.said
	if !over {
		b.scanned = f
	}
	b.mu.Unlock()
	if over {
		f(said)
	}
}

// Close implements io.Closer.
func (b *body) Close() error { return b.src.Close() }

// detachedBody is a body that was read whole, for a call that outlives the
// request.
type detachedBody struct {
	bytes  []byte
	memory Memory
}

// detach hands over what is held.
func (b *body) detach() *detachedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &detachedBody{b.held, b.memory}
	b.held = nil
	return d
}

// drop lets go of the body.
func (d *detachedBody) drop() {
	d.memory.Release(len(d.bytes))
	d.bytes = nil
}

// drop gives up what is held. What still reads finds that the client has gone.
func (b *body) drop() {
	b.mu.Lock()
	b.memory.Release(len(b.held))
	b.held = nil
	b.scanned = nil
	b.scan.end()
	if b.err == nil {
		b.err = ingest.ErrClientGone
	}
	b.mu.Unlock()
	b.due.Store(0)
}

// ReadBody reads the body of a request whole, at most limit bytes, for Resumable
// or DropBody. The error is one that the client is told, or ErrBody.
func (rt *Route) ReadBody(q *Request, limit int64) ([]byte, error) {
	tooLarge := &deliver.RefusalError{Answer: &event.Error{
		Code: event.CodeRequestTooLarge, Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("the request body is larger than %d bytes", limit),
	}}
	if q.ContentLength > limit {
		if q.ProtoMajor == 1 {
			q.W.Header().Set("Connection", "close") // or net/http would read on before it answers
		}
		return nil, tooLarge
	}
	q.body = rt.newBody(q)
	err := q.body.hold(limit + 1)
	if err == nil && int64(len(q.body.held)) > limit {
		err = tooLarge
	}
	if err != nil {
		q.body.drop()
		return nil, err
	}
	return q.body.held, nil
}

// DropBody lets go of a body that ReadBody has read.
func (q *Request) DropBody() { q.body.drop() }

// Interface guards
var _ io.ReadCloser = (*body)(nil)
