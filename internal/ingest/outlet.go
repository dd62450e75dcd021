package ingest

import (
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// Outlet is the way from a Producer to the client that made the request, beside
// the log that every client reads.
type Outlet interface {
	// Inform sends an informational response (1xx).
	Inform(status int, header http.Header)
	// Expect takes status and header of a response that is a token stream, or
	// may become one; they are sent with its first frame.
	Expect(status int, header http.Header)
	// Pass sends the head of a response that passes as it is, and returns where
	// its body goes. Fields that are set there later are trailers. It returns
	// nil where a heartbeat has committed another response already, or the
	// client has left a stream that others read.
	Pass(Head) http.ResponseWriter
	// Continue returns where the body of a stream goes that passes as it is after
	// heartbeats have committed the head of one; nil where anything else was
	// sent, or the client has left.
	Continue() http.ResponseWriter
	// Seal keeps heartbeats from committing a response from now on, and reports
	// whether one has.
	Seal() (committed bool)
	// Deliver lets the client have what is new in the log, and tells the watch
	// that output of the model has come. It returns that moment, as the watch
	// counts.
	Deliver(watch *timeouts.Watch) (time.Duration, error)
}

// Head is the head of a response that passes as it is.
type Head struct {
	Status int
	Header http.Header
	// Stream says that the body is a stream: it is written under the write
	// timeout.
	Stream bool
	// Comments says that heartbeats may stand between the frames of the body.
	Comments bool
}

// Call is how a call of the next handler ended, for the client that made the
// request.
type Call struct {
	Header  http.Header // set by a handler that has sent nothing; nil otherwise
	Aborted bool        // the client must not take the end for a good one
	Err     error       // for Caddy's error routes
}

// clean reports whether the body has come to its end by itself.
func (c Call) clean() bool { return !c.Aborted && c.Err == nil }
