// Package upstream lets a response of a backend through when its model has begun
// to answer, and not before: until then nothing is lost if another backend is asked
// instead.
//
// Invariant: a response that is let through is, byte for byte, what the backend
// has sent, from its start; one that is held back was closed, and nothing of it
// has been seen by a client.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// MaxHeld is how much of a response is held until its first output, in bytes. What
// is longer is let through as it is: metadata of that size is no silence.
const MaxHeld = 1 << 20

// UnansweredError is the error of a backend that has taken a request and has not
// begun to answer it.
type UnansweredError struct {
	Code event.Code // first_token_timeout, upstream_truncated, or what its error is
	// What the backend has sent: nothing where Code is first_token_timeout, or
	// where it broke off before its header.
	Status int
	Header http.Header
	Body   []byte

	cause error
}

// Error implements the error interface.
func (e *UnansweredError) Error() string {
	return fmt.Sprintf("the backend has not begun to answer: %s: %v", e.Code, e.cause)
}

// Unwrap returns what has happened.
func (e *UnansweredError) Unwrap() error { return e.cause }

// Timeout reports whether it was silence, for what makes a status of an error.
func (e *UnansweredError) Timeout() bool { return e.Code == event.Code(timeouts.FirstToken) }

// Temporary is the other method of net.Error.
func (*UnansweredError) Temporary() bool { return true }

// Call is one call of a backend.
type Call struct {
	// RoundTrip makes the call.
	RoundTrip func(*http.Request) (*http.Response, error)
	// FirstToken is how long the first output may take, where the request asks
	// for a stream; 0: as long as it likes.
	FirstToken time.Duration
	// Asks is whether the request asks for a stream.
	Asks bool
}

// Do makes the call. The error is an UnansweredError where a stream has not begun;
// else it is that of RoundTrip. A response that is no token stream is returned as
// it is, and once its header is there nothing limits it.
func (c *Call) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	g := &gate{parent: req.Context(), cancel: cancel}
	if c.Asks && c.FirstToken > 0 {
		g.silent = &timeouts.TimeoutError{Cause: timeouts.FirstToken, Limit: c.FirstToken}
		g.timer = time.AfterFunc(c.FirstToken, func() { cancel(g.silent) })
	}
	resp, err := c.RoundTrip(req.WithContext(ctx))
	if err != nil {
		defer cancel(nil)
		if !g.inTime() && g.parent.Err() == nil {
			return nil, g.tooLate()
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || !c.isStream(req, resp) {
		if !g.inTime() {
			return nil, g.refuse(resp, nil, nil)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection
			resp.Body = &body{src: resp.Body, cancel: cancel}
		}
		return resp, nil
	}
	return g.await(req, resp)
}

// isStream reports whether a response can be a token stream that is read here.
func (c *Call) isStream(req *http.Request, resp *http.Response) bool {
	coding := resp.Header.Get("Content-Encoding")
	return (coding == "" || coding == "identity") &&
		provider.IsCandidate(resp.Header.Get("Content-Type"), req.URL.Path, resp.StatusCode, c.Asks)
}

// gate holds a response back until its first output.
type gate struct {
	parent context.Context         // of the request: it ends with the client, or for a reason of the handler's
	cancel context.CancelCauseFunc // the call alone
	timer  *time.Timer             // nil where there is no limit
	silent *timeouts.TimeoutError
	held   []byte
}

// inTime ends the limit, and reports whether it has not passed.
func (g *gate) inTime() bool { return g.timer == nil || g.timer.Stop() }

// tooLate is the error of a backend that was silent for too long.
func (g *gate) tooLate() error {
	return &UnansweredError{Code: event.Code(g.silent.Code()), cause: g.silent}
}

// verdict is what is known of a stream that is held back.
type verdict struct {
	begun  bool // it may be let through
	failed *event.Error
}

// await reads the response until its model has put something out.
func (g *gate) await(req *http.Request, resp *http.Response) (*http.Response, error) {
	reader := provider.NewReader(provider.Options{Path: req.URL.Path, ContentType: resp.Header.Get("Content-Type")})
	defer reader.Release()
	piece := make([]byte, 4<<10)
	for {
		n, err := resp.Body.Read(piece)
		g.held = append(g.held, piece[:n]...)
		events := reader.Feed(piece[:n])
		v := judge(reader, events)
		if err != nil && !v.begun && v.failed == nil {
			v = judge(reader, reader.Close(errors.Is(err, io.EOF)))
		}
		switch {
		case v.failed != nil:
			return nil, g.refuse(resp, v.failed, err)
		case v.begun || len(g.held) >= MaxHeld:
			if !g.inTime() {
				return nil, g.refuse(resp, nil, nil)
			}
			resp.Body = &body{held: g.held, end: err, src: resp.Body, cancel: g.cancel}
			return resp, nil
		case err != nil: // it has ended, and is no stream that is known
			g.inTime()
			resp.Body = &body{held: g.held, end: err, src: resp.Body, cancel: g.cancel}
			return resp, nil
		}
	}
}

// judge looks at what has come of a stream. One that ends well without any output
// has been answered; one that is in no known format is not judged.
func judge(reader *provider.Reader, events []event.Event) verdict {
	if reader.State() == provider.Opaque || reader.Silent() > 0 {
		return verdict{begun: true}
	}
	for i := range events {
		switch kind := events[i].Kind; {
		case kind.IsOutput(), kind == event.Done:
			return verdict{begun: true}
		case kind == event.Failed:
			return verdict{failed: events[i].Err}
		}
	}
	return verdict{}
}

// refuse closes a response and returns why it is held back: it came too late, it
// begins with an error, or err has ended it before it has begun. Where the client
// has left, or the handler has ended the call, no backend is to blame.
func (g *gate) refuse(resp *http.Response, failed *event.Error, err error) error {
	inTime := g.inTime()
	_ = resp.Body.Close()
	defer g.cancel(nil)
	switch {
	case g.parent.Err() != nil:
		return context.Cause(g.parent)
	case !inTime:
		return g.tooLate()
	case err == nil || errors.Is(err, io.EOF):
		err = errors.New(failed.Message) //nolint:err113 // the backend's words
	}
	return &UnansweredError{Code: failed.Code, Status: resp.StatusCode, Header: resp.Header, Body: g.held, cause: err}
}

// body is a response body whose start was read already.
type body struct {
	held   []byte
	end    error // that came after held; nil where there is more
	src    io.ReadCloser
	cancel context.CancelCauseFunc
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(b.held) > 0 {
		n := copy(p, b.held)
		if b.held = b.held[n:]; len(b.held) == 0 {
			b.held = nil // an empty rest would keep all of it
		}
		return n, nil
	}
	if b.end != nil {
		return 0, b.end
	}
	return b.src.Read(p) //nolint:wrapcheck // a reader's error is its own
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.src.Close() //nolint:wrapcheck // likewise
}
