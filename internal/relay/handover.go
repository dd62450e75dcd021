package relay

import (
	"maps"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// handover is the outlet of a producer that runs in a goroutine of its own. As
// long as the response is not known to be a stream, it borrows the goroutine of
// the client that made the request, for what passes as it is.
type handover struct {
	conn     *deliver.Conn
	expect   func(status int, header http.Header)
	promised bool // the request asks for a stream, which others may read by now

	calls chan func()
	gone  chan struct{}    // closed when the client takes no more calls
	done  chan ingest.Call // one value, when the producer has ended
}

func newHandover(c *deliver.Conn, expect func(int, http.Header)) *handover {
	return &handover{
		conn: c, expect: expect,
		calls: make(chan func()), gone: make(chan struct{}), done: make(chan ingest.Call, 1),
	}
}

// borrow runs f in the client's goroutine and waits for it.
func (h *handover) borrow(f func()) error {
	done := make(chan struct{})
	call := func() {
		defer close(done)
		f()
	}
	select {
	case h.calls <- call:
		<-done
		return nil
	case <-h.gone:
		return ingest.ErrClientGone
	}
}

// Inform does nothing: by the time a detached producer learns of it, the client
// may have had its first frame.
func (h *handover) Inform(int, http.Header) {}

// Expect implements ingest.Outlet.
func (h *handover) Expect(status int, header http.Header) { h.expect(status, header) }

// Pass implements ingest.Outlet.
func (h *handover) Pass(head ingest.Head) http.ResponseWriter {
	b := &borrowedBody{handover: h, header: make(http.Header)}
	b.err = h.borrow(func() { b.body = connOutlet{h.conn}.Pass(head) })
	if b.err == nil && b.body == nil || b.err != nil && h.promised {
		return nil // the others that read the response have to be told
	}
	return b
}

// Continue implements ingest.Outlet.
func (h *handover) Continue() http.ResponseWriter {
	b := &borrowedBody{handover: h, header: make(http.Header)}
	if err := h.borrow(func() { b.body = h.conn.Continue() }); err != nil || b.body == nil {
		return nil
	}
	return b
}

// Deliver implements ingest.Outlet: clients are woken by the log.
func (h *handover) Deliver(watch *timeouts.Watch) (time.Duration, error) {
	return watch.Output(), nil
}

// Seal implements ingest.Outlet. Where the client has left a stream that others
// read, those are committed.
func (h *handover) Seal() bool {
	if h.isGone() {
		return h.promised
	}
	return h.conn.Seal()
}

// isGone reports whether the client has left.
func (h *handover) isGone() bool {
	select {
	case <-h.gone:
		return true
	default:
		return false
	}
}

// borrowedBody is the body of a response that passes as it is, written from
// another goroutine than the client's.
type borrowedBody struct {
	*handover
	header http.Header         // trailers
	body   http.ResponseWriter // for the client's goroutine alone
	err    error
}

// Header implements http.ResponseWriter.
func (b *borrowedBody) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter; the head was sent by Pass.
func (b *borrowedBody) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (b *borrowedBody) Write(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.err = b.borrow(func() { n, err = b.body.Write(p) }); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// FlushError is what an http.ResponseController calls.
func (b *borrowedBody) FlushError() (err error) {
	if gone := b.borrow(func() { err = http.NewResponseController(b.body).Flush() }); gone != nil {
		return gone
	}
	return err
}

// Finish hands the trailers over.
func (b *borrowedBody) Finish() {
	_ = b.borrow(func() { maps.Copy(b.body.Header(), b.header) })
}

// Interface guards
var (
	_ ingest.Outlet       = (*handover)(nil)
	_ http.ResponseWriter = (*borrowedBody)(nil)
)
