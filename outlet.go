package llmstream

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// outlet is the way from a producer to the client who made the request, beside
// the log that everybody reads.
type outlet interface {
	// inform sends an informational response (1xx).
	inform(status int, header http.Header)
	// expect takes status and header of a response that is a token stream, or
	// may become one; they are sent with its first frame.
	expect(status int, header http.Header)
	// pass sends status and header of a response that goes through as it is,
	// and returns where its body goes to. Fields that are set there later are
	// trailers. A body that is a stream is written under the write timeout, and
	// one that is not just passing may have heartbeats between its frames. It
	// returns nil where a heartbeat has committed another response already, or
	// the client has left a stream that others read.
	pass(to phase, status int, header http.Header, stream bool) http.ResponseWriter
	// seal keeps heartbeats from committing a response from now on, and reports
	// whether one has.
	seal() (committed bool)
	// deliver lets the client have what is new in the log, and tells the watch
	// when the model's output has come. It returns that moment, as the watch
	// counts.
	deliver(watch *timeouts.Watch) (time.Duration, error)
}

// errClientGone is the error of what a producer does for a client who has left.
var errClientGone = errors.New("the client has left")

// attached is the outlet of a producer that runs in the goroutine of its only
// client. A client that takes no more holds the producer back, and what it has
// had is forgotten.
type attached struct {
	*client
	stream *fanout.Stream
}

func (a attached) deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Block()
	err := a.pump(false)
	watch.Delivered()
	if err == nil && !a.ended {
		a.stream.Recycle()
	}
	return at, err
}

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

// outcome is how a call of the next handlers ended.
type outcome struct {
	header  http.Header // set by a handler that has sent nothing
	aborted bool        // it panicked with http.ErrAbortHandler
	err     error
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

// tied is the handover of a producer that ends with its only client. A client
// that keeps up is waited for, so that it misses nothing of what comes at once;
// one that does not catch up in time is left behind until it has.
type tied struct {
	*handover
	stream *fanout.Stream
	pace   pace
	left   bool // behind
	cut    func()
}

// deliver implements outlet.
func (t *tied) deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Output()
	switch {
	case t.lag() <= t.pace.events:
		t.left = false
	case !t.left:
		t.left = !t.awaitClient()
		if t.left && t.pace.policyOf(t.client.dialect) == slowDisconnect {
			t.client.dismiss()
			t.cut() // it is in a write that may last long
		}
	}
	return at, nil
}

// lag returns how many events have not been written to the client.
func (t *tied) lag() int {
	head, _ := t.stream.Head()
	return head - int(t.client.position.Load())
}

// awaitClient waits until the client has caught up, and reports whether it has
// in time.
func (t *tied) awaitClient() bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for t.lag() > t.pace.events {
		select {
		case <-t.client.took:
		case <-t.gone:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
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

// addedFields returns the fields of a response to one client that came from the
// upstream, and not from handlers before us, which have set own: other clients
// are to have those too, but for what concerns the one who asked.
func addedFields(header, own http.Header) http.Header {
	added := make(http.Header)
	for field, values := range header {
		had := own[field]
		switch {
		case isPersonal(field) || slices.Equal(values, had):
		case len(values) > len(had) && slices.Equal(values[:len(had)], had):
			added[field] = values[len(had):]
		default:
			added[field] = values
		}
	}
	return added
}

// isPersonal reports whether a field is for the client who asked: a cookie, a
// challenge, what his origin may do, how long he may keep the answer.
func isPersonal(field string) bool {
	switch field {
	case "Set-Cookie", "Www-Authenticate", "Clear-Site-Data", "Expires", "Age", "Etag", "Surrogate-Control", "Cdn-Cache-Control":
		return true
	}
	return strings.HasPrefix(field, "Access-Control-") || strings.HasPrefix(field, "Proxy-")
}

// mergedHeader returns what a client gets who has own fields, of a response
// with the fields that addedFields gave. His own are what counts for him.
func mergedHeader(own, added http.Header) http.Header {
	merged := maps.Clone(own)
	for field, values := range added {
		switch {
		case field == "Vary":
			merged[field] = slices.Concat(own[field], values)
		case len(own[field]) == 0:
			merged[field] = values
		}
	}
	return merged
}

// replaceHeader makes dst hold the fields of src and no others. Their values
// are copied: many clients may be given src, and handlers before us change what
// is in dst.
func replaceHeader(dst, src http.Header) {
	clear(dst)
	maps.Copy(dst, src.Clone())
}

// Interface guards
var (
	_ outlet              = attached{}
	_ outlet              = (*handover)(nil)
	_ outlet              = (*tied)(nil)
	_ http.ResponseWriter = (*borrowed)(nil)
)
