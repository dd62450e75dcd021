package ingest

import (
	"maps"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
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

// pass sends the head as it is and gives the next handler the header that takes
// its trailers.
func (p *Producer) pass(to phase, status int, header http.Header) {
	p.phase, p.status = to, status
	if to == passing {
		p.Watch.TotalOnly()
	} else {
		p.Watch.Begin()
		if !provider.TakesNoComments(p.Path) {
			p.Watch.EnableHeartbeat()
		}
	}
	p.body = p.Out.Pass(Head{Status: status, Header: header, Stream: p.reader != nil, Comments: to == mirroring})
	if p.body == nil && isEventStream(header) && status < http.StatusMultipleChoices {
		p.body = p.Out.Continue()
	}
	if p.body == nil {
		p.phase = refused
		return
	}
	p.header = p.body.Header()
}

func isEventStream(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream")
}

// maxRefusal is how much of the body of an error is told in an error frame, in
// bytes. Of a success, which may be a whole completion, it is max_event.
const maxRefusal = 16 << 10

// refuse keeps a piece of the body of a response that can no longer be passed on.
func (p *Producer) refuse(b []byte) {
	limit := maxRefusal
	if p.status < http.StatusMultipleChoices {
		limit = p.MaxEvent
	}
	p.refusal = append(p.refusal, b[:min(len(b), max(0, limit-len(p.refusal)))]...)
}

// endRefused ends a response that could not be passed on. A whole completion of
// an API that we know was paid for: the client gets what it says.
func (p *Producer) endRefused() {
	if p.status < http.StatusMultipleChoices {
		events, reader := provider.DecodeWhole(provider.Options{Path: p.Path, Choices: p.Choices()}, p.refusal)
		if reader != nil {
			p.reader, p.phase = reader, decoding
			p.append(events, 0)
			return
		}
	}
	p.append([]event.Event{*refusedTerminal(p.status, p.refusal)}, 0)
}

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
		p.refuse(p.reader.Held())
		return nil
	}
	maps.Copy(p.header, trailers)
	if _, err := p.body.Write(p.reader.Held()); err != nil {
		return err
	}
	return http.NewResponseController(p.body).Flush()
}
