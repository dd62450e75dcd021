package ingest

import (
	"maps"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// This file has the part of a Producer that deals with responses which pass as
// they are.

// unbuffered makes everything on the way pass a stream on as it comes.
func unbuffered(h http.Header) {
	h.Del("Content-Length")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Incremental", "?1")
}

// geminiStream ends the path of Gemini's streams. They get no heartbeat: Google's
// SDK for JavaScript drops the event that follows a comment.
const geminiStream = ":streamGenerateContent"

// isGemini reports whether the request is for one of Gemini's streams.
func (p *Producer) isGemini() bool { return strings.HasSuffix(p.Path, geminiStream) }

// pass sends the head as it is and gives the next handler the header that takes
// its trailers.
func (p *Producer) pass(to phase, status int, header http.Header) {
	p.phase, p.status = to, status
	if to == passing {
		p.Watch.TotalOnly()
	} else {
		p.Watch.Begin()
		if !p.isGemini() {
			p.Watch.EnableHeartbeat()
		}
	}
	p.body = p.Out.Pass(Head{Status: status, Header: header, Stream: p.reader != nil, Comments: to == mirroring})
	if p.body == nil {
		p.phase = refused
		return
	}
	p.header = p.body.Header()
}

// maxRefusal is how much of a response that can no longer be passed on is told
// in an error frame, in bytes.
const maxRefusal = 16 << 10

// mirror passes a piece of the body on while the decoder looks at it, for as long
// as it understands what comes.
func (p *Producer) mirror(b []byte) (int, error) {
	p.Record.Received(len(b))
	outputs := p.look(p.reader.Feed(b)) + p.reader.Silent()
	p.releaseEvents()
	if outputs > 0 {
		p.Record.Output(outputs, p.Watch.Output())
	}
	switch {
	case p.opaque(), p.terminal != nil && isOurFailure(p.terminal):
		p.terminal, p.phase = nil, passing // nothing is known of it from now on
		p.Watch.TotalOnly()
	case p.terminal != nil && p.linger == nil:
		p.Watch.TotalOnly() // what still comes is no output
		p.startLinger()
	}
	p.Watch.Block()
	defer p.Watch.Unblock()
	defer p.Watch.Wrote()
	var n int
	n, p.err = p.body.Write(b)
	return n, p.err
}

// look takes what the decoder makes of a mirrored stream, and returns how many
// outputs of the model there are.
func (p *Producer) look(events []event.Event) (outputs int) {
	for _, ev := range events {
		if ev.Kind.IsTerminal() {
			p.terminal = &ev
		} else if ev.Kind.IsOutput() {
			outputs++
		}
	}
	if outputs > 0 || p.terminal != nil {
		p.identify()
	}
	return outputs
}

// isOurFailure reports whether a response has ended because we cannot read it.
func isOurFailure(terminal *event.Event) bool {
	return terminal.Kind == event.Failed &&
		(terminal.Err.Code == event.CodeEventTooLarge || terminal.Err.Code == event.CodeInvalidUpstream)
}

// passHeld sends what was held back of a stream that was not recognized, and
// lets the rest pass.
func (p *Producer) passHeld() error {
	p.releaseEvents()
	p.Logger.Warn("unrecognized stream is passed on as it is",
		zap.String("path", p.Path), zap.String("content_type", p.upstream.Get("Content-Type")))
	trailers := p.header
	p.pass(passing, p.status, p.upstream)
	if p.phase == refused {
		return nil
	}
	maps.Copy(p.header, trailers)
	if _, err := p.body.Write(p.reader.Held()); err != nil {
		return err
	}
	return http.NewResponseController(p.body).Flush()
}
