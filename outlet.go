package llmstream

import (
	"errors"
	"net/http"
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

// outcome is how a call of the next handlers ended.
type outcome struct {
	header  http.Header // set by a handler that has sent nothing
	aborted bool        // it panicked with http.ErrAbortHandler
	err     error
}

// Interface guard
var _ outlet = attached{}
