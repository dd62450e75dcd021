package llmstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/emit"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// producer is the http.ResponseWriter that the next handler writes a response
// into. It finds out whether the response is a token stream. If so, it decodes
// it and appends what it says to the log; if not, everything goes through to
// the client as it came.
type producer struct {
	handler *Handler
	path    string // of the request: names the backend's API
	dialect string
	stream  *fanout.Stream
	client  *client

	cancel context.CancelCauseFunc // of the upstream call

	header http.Header // what the next handler sees and sets
	phase  phase
	reader *provider.Reader
	output []provider.Event // scratch of append
	err    error            // of the client's connection
	linger *time.Timer      // ends an upstream that stays open after its end
}

// lingerTime is how long an upstream may take to close the body after its
// terminal event. One that does can be used again for the next request.
const lingerTime = 500 * time.Millisecond

var errLingered = errors.New("upstream stayed open after the end of the response")

// phase is how far a producer is with its response.
type phase uint8

const (
	waiting   phase = iota // for the header
	reading                // a token stream, or what may become one
	mirroring              // like passing, and the decoder looks on
	passing                // something else: as it came
	finished               // the terminal event is in the log
)

// run lets the next handler produce the response and returns when it is
// complete. The error is the next handler's, where the response is not ours;
// aborted tells that it panicked with http.ErrAbortHandler.
func (p *producer) run(next caddyhttp.Handler, r *http.Request) (aborted bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			if e, ok := v.(error); !ok || !errors.Is(e, http.ErrAbortHandler) {
				panic(v)
			}
			aborted = true
		}
	}()
	return false, next.ServeHTTP(p, r)
}

// Header implements http.ResponseWriter.
func (p *producer) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *producer) WriteHeader(status int) {
	switch {
	case p.phase != waiting:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		p.client.inform(status, p.header)
	case !provider.IsCandidate(p.header.Get("Content-Type"), p.path, status) || encoded(p.header):
		p.passHeader(passing, status)
	case p.dialect == emit.DialectPassthrough:
		p.newReader()
		unbuffered(p.header)
		p.passHeader(mirroring, status)
	default:
		p.newReader()
		p.phase = reading
		p.client.expect(status, p.header)
		p.header = make(http.Header) // for trailers, which a stream that is re-emitted does not have
	}
}

// encoded reports whether the body of a response is compressed.
func encoded(h http.Header) bool {
	enc := h.Get("Content-Encoding")
	return enc != "" && enc != "identity"
}

// unbuffered makes everyone on the way pass a stream on as it comes.
func unbuffered(h http.Header) {
	h.Del("Content-Length")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Incremental", "?1")
}

func (p *producer) newReader() {
	p.reader = provider.NewReader(provider.Options{
		Path:        p.path,
		ContentType: p.header.Get("Content-Type"),
		MaxEvent:    p.handler.maxEvent(),
	})
}

// passHeader sends the header as it is and gives the next handler the client's
// own, for its trailers.
func (p *producer) passHeader(to phase, status int) {
	p.phase = to
	p.client.pass(status, p.header)
	p.header = p.client.w.Header()
}

// Write implements http.ResponseWriter.
func (p *producer) Write(b []byte) (int, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	switch p.phase {
	case mirroring:
		p.reader.Feed(b)
		return p.client.w.Write(b)
	case passing:
		return p.client.w.Write(b)
	case finished:
		return len(b), nil // what a backend says after its last event
	}
	events := p.reader.Feed(b)
	if p.reader.State() == provider.Opaque {
		return len(b), p.passStream()
	}
	p.append(events)
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// passStream sends what was held back of a stream that nobody knows, and lets
// the rest through.
func (p *producer) passStream() error {
	p.handler.logger.Warn("unrecognized stream is passed on as it is",
		zap.String("path", p.path),
		zap.String("content_type", p.client.header.Get("Content-Type")))
	trailers := p.header
	p.header = p.client.header
	p.passHeader(passing, p.client.status)
	for field, values := range trailers {
		p.header[field] = values
	}
	if _, err := p.client.w.Write(p.reader.Held()); err != nil {
		return err
	}
	return p.client.rc.Flush()
}

// append puts the events that the route emits into the log and lets the client
// have them.
func (p *producer) append(events []provider.Event) {
	p.output = p.output[:0]
	var terminal *provider.Event
	for i := range events {
		switch ev := &events[i]; {
		case ev.Kind.IsTerminal():
			terminal = ev
		case p.handler.emits(p.dialect, ev.Kind):
			p.output = append(p.output, *ev)
		}
	}
	if len(p.output) > 0 {
		_ = p.stream.Append(p.output) // this log has no limit: it is emptied below
	}
	if terminal != nil {
		p.end(terminal)
	}
	if len(p.output) == 0 && terminal == nil {
		return
	}
	if p.err = p.client.pump(false); p.err == nil && terminal == nil {
		p.stream.Recycle()
	}
}

// end puts the terminal event into the log.
func (p *producer) end(terminal *provider.Event) {
	ev := *terminal
	p.stream.End(&ev)
	p.phase = finished
	p.linger = time.AfterFunc(lingerTime, func() { p.cancel(errLingered) })
}

// conclude brings the response to its end after the next handler has returned
// with err, or has aborted. The error it returns is for Caddy's error routes;
// like reverse_proxy it panics with http.ErrAbortHandler where the client must
// not take the end for a good one.
func (p *producer) conclude(aborted bool, err error) error {
	if p.linger != nil {
		p.linger.Stop()
	}
	switch p.phase {
	case waiting:
		p.client.adopt(p.header)
	case passing:
	case mirroring:
		aborted = aborted || p.truncated()
	case reading:
		aborted = false
		if err != nil && !p.client.committed {
			return err
		}
		p.close(err)
		err = nil
	case finished:
		aborted, err = false, nil
	}
	if p.client.failure != nil {
		p.client.refuse(p.dialect, p.stream.ID())
		return nil
	}
	if aborted || p.err != nil {
		panic(http.ErrAbortHandler)
	}
	return err
}

// truncated reports whether a mirrored stream is one that we know and has
// ended without a terminal event.
func (p *producer) truncated() bool {
	for _, ev := range p.reader.Close() {
		if ev.Kind == provider.Failed && ev.Err.Code == provider.CodeUpstreamTruncated {
			return true
		}
	}
	return false
}

// close ends a stream that has no terminal event yet: with the error of the
// next handler, or with what the decoder makes of the end of the body.
func (p *producer) close(err error) {
	if err != nil {
		p.append([]provider.Event{{Kind: provider.Failed, Err: &provider.Error{
			Code: provider.CodeUpstreamError, Status: http.StatusBadGateway, Message: err.Error(),
		}}})
		return
	}
	events := p.reader.Close()
	if p.reader.State() == provider.Opaque {
		p.err = p.passStream()
		return
	}
	p.append(events)
}

// FlushError is what an http.ResponseController calls. Frames are flushed when
// they are written.
func (p *producer) FlushError() error {
	switch p.phase {
	case passing, mirroring:
		return p.client.rc.Flush()
	case waiting, reading, finished:
	}
	return nil
}

// ReadFrom implements io.ReaderFrom, so that what only passes through can
// still use sendfile.
func (p *producer) ReadFrom(src io.Reader) (int64, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	if rf, ok := p.client.w.(io.ReaderFrom); ok && p.phase == passing {
		return rf.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{p}, src)
}

// Hijack implements http.Hijacker.
func (p *producer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := p.client.rc.Hijack()
	if err == nil {
		p.phase = passing
	}
	return conn, rw, err
}

// Unwrap gives an http.ResponseController what is not said here.
func (p *producer) Unwrap() http.ResponseWriter { return p.client.w }

// Interface guards
var (
	_ http.ResponseWriter = (*producer)(nil)
	_ http.Hijacker       = (*producer)(nil)
	_ io.ReaderFrom       = (*producer)(nil)
)
