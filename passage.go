package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// This file has the part of a producer that deals with responses which go
// through as they came.

// unbuffered makes everyone on the way pass a stream on as it comes.
func unbuffered(h http.Header) {
	h.Del("Content-Length")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Incremental", "?1")
}

// passOn sends the header as it is and gives the next handler the one that
// takes its trailers.
func (p *producer) passOn(to phase, status int, header http.Header) {
	p.phase, p.status = to, status
	if to == passing {
		p.watch.TotalOnly()
	} else {
		p.watch.Begin()
		if !provider.TakesNoComments(p.path) {
			p.watch.EnableHeartbeat()
		}
	}
	p.body = p.out.pass(to, status, header, p.reader != nil)
	if p.body == nil {
		p.phase = refused
		return
	}
	p.header = p.body.Header()
}

// maxRefusal is how much of a response that can no longer be passed on is told
// in an error frame, in bytes.
const maxRefusal = 64 << 10

// mirror passes a piece of the body on while the decoder looks at it, for as long
// as it understands what comes.
func (p *producer) mirror(b []byte) (int, error) {
	p.record.upstreamBytes.Add(int64(len(b)))
	events := p.reader.Feed(b)
	outputs := p.reader.Silent()
	for _, ev := range events {
		if ev.Kind.IsTerminal() {
			p.terminal = &ev
		} else if ev.Kind.IsOutput() {
			outputs++
		}
	}
	p.reader.Release()
	if outputs > 0 {
		p.listen()
		p.record.output(outputs, p.watch.Output())
	}
	switch {
	case p.reader.State() == provider.Opaque, p.terminal != nil && isOurFailure(p.terminal):
		p.terminal, p.phase = nil, passing // nothing is known of it from now on
		p.watch.TotalOnly()
	case p.terminal != nil && p.linger == nil:
		p.watch.TotalOnly() // what still comes is no output
		p.linger = time.AfterFunc(lingerTime, func() { p.cancel(errLingered) })
	}
	p.watch.Block()
	defer p.watch.Unblock()
	defer p.watch.Wrote()
	var n int
	n, p.err = p.body.Write(b)
	return n, p.err
}

// isOurFailure reports whether a response has ended because we can not read it.
func isOurFailure(terminal *event.Event) bool {
	return terminal.Kind == event.Failed &&
		(terminal.Err.Code == event.CodeEventTooLarge || terminal.Err.Code == event.CodeInvalidUpstream)
}

// passHeld sends what was held back of a stream that nobody knows, and lets
// the rest through.
func (p *producer) passHeld() error {
	p.release()
	p.handler.logger.Warn("unrecognized stream is passed on as it is",
		zap.String("path", p.path), zap.String("content_type", p.held.Get("Content-Type")))
	trailers := p.header
	p.passOn(passing, p.status, p.held)
	if p.phase == refused {
		return nil
	}
	maps.Copy(p.header, trailers)
	if _, err := p.body.Write(p.reader.Held()); err != nil {
		return err
	}
	return http.NewResponseController(p.body).Flush()
}

// endMirror finds out how a mirrored stream has ended that has no terminal event:
// by a cause of ours, or cut off.
func (p *producer) endMirror(cause *event.Event, end outcome) {
	if p.phase != mirroring || p.terminal != nil || p.err != nil {
		return
	}
	if p.terminal = cause; cause != nil {
		return
	}
	if end.aborted && p.ctx.Err() != nil {
		return // the client has left
	}
	for _, ev := range p.reader.Close(!end.aborted && end.err == nil) {
		if ev.Kind.IsTerminal() {
			p.terminal = &ev
		}
	}
}

// truncated reports whether a mirrored stream is one that we know and has
// ended without a terminal event.
func (p *producer) truncated() bool {
	return p.phase == mirroring && p.terminal != nil && p.terminal.Kind == event.Failed &&
		p.terminal.Err.Code == event.CodeUpstreamTruncated
}

// FlushError is what an http.ResponseController calls. Frames are flushed when
// they are written.
func (p *producer) FlushError() error {
	if p.phase != passing && p.phase != mirroring {
		return nil
	}
	err := http.NewResponseController(p.body).Flush()
	if p.err == nil && p.phase == mirroring {
		p.err = err
	}
	return err
}

// ReadFrom implements io.ReaderFrom, so that what only passes through can
// still use sendfile.
func (p *producer) ReadFrom(src io.Reader) (int64, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	if rf, ok := p.body.(io.ReaderFrom); ok && p.phase == passing {
		return rf.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{p}, src)
}

// Hijack implements http.Hijacker for a handler that takes the connection over
// before it has answered.
func (p *producer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a, ok := p.out.(attached)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, err := a.rc.Hijack()
	if err == nil {
		p.phase, p.body = passing, a.w
	}
	return conn, rw, err
}
