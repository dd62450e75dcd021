package llmstream

import (
	"maps"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// handover is the outlet of a producer that runs in a goroutine of its own. As
// long as the response is not known to be a stream, it borrows the goroutine
// of the client who made the request for what goes through as it is.
type handover struct {
	client   *client
	describe func(status int, header http.Header) // tells who reads the log

	calls   chan func(w http.ResponseWriter)
	gone    chan struct{} // closed when the client serves no more calls
	outcome chan outcome  // one value, when the producer has ended
}

func newHandover(c *client, describe func(int, http.Header)) *handover {
	return &handover{
		client:   c,
		describe: describe,
		calls:    make(chan func(http.ResponseWriter)),
		gone:     make(chan struct{}),
		outcome:  make(chan outcome, 1),
	}
}

// borrow runs f in the client's goroutine and waits for it.
func (h *handover) borrow(f func(w http.ResponseWriter)) error {
	done := make(chan struct{})
	call := func(w http.ResponseWriter) {
		defer close(done)
		f(w)
	}
	select {
	case h.calls <- call:
		<-done
		return nil
	case <-h.gone:
		return errClientGone
	}
}

// inform does nothing: by the time a detached producer learns of it, the
// client may have had its first frame.
func (h *handover) inform(int, http.Header) {}

// expect implements outlet.
func (h *handover) expect(status int, header http.Header) { h.describe(status, header) }

// pass implements outlet.
func (h *handover) pass(to phase, status int, header http.Header, stream bool) http.ResponseWriter {
	b := &borrowed{handover: h, header: make(http.Header)}
	b.err = h.borrow(func(http.ResponseWriter) { b.body = h.client.pass(to, status, header, stream) })
	if b.err == nil && b.body == nil || b.err != nil && h.client.asked {
		return nil // the others who read the response have to be told
	}
	return b
}

// deliver implements outlet: who reads the log is woken by the log.
func (h *handover) deliver(watch *timeouts.Watch) (time.Duration, error) {
	return watch.Output(), nil
}

// seal implements outlet. Where the client has left a stream that others read,
// those are committed.
func (h *handover) seal() bool {
	if h.isGone() {
		return h.client.asked
	}
	return h.client.seal()
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

// borrowed is the body of a response that goes through as it is, written from
// another goroutine than the client's.
type borrowed struct {
	*handover
	header http.Header         // trailers
	body   http.ResponseWriter // for the client's goroutine alone
	err    error
}

// Header implements http.ResponseWriter.
func (b *borrowed) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter; the header was sent by pass.
func (b *borrowed) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (b *borrowed) Write(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	b.err = b.borrow(func(http.ResponseWriter) { n, err = b.body.Write(p) })
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}

// FlushError is what an http.ResponseController calls.
func (b *borrowed) FlushError() (err error) {
	if gone := b.borrow(func(w http.ResponseWriter) { err = http.NewResponseController(w).Flush() }); gone != nil {
		return gone
	}
	return err
}

// finish hands the trailers over.
func (b *borrowed) finish() {
	_ = b.borrow(func(w http.ResponseWriter) { maps.Copy(w.Header(), b.header) })
}

// Interface guards
var (
	_ outlet              = (*handover)(nil)
	_ http.ResponseWriter = (*borrowed)(nil)
)
