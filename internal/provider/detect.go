package provider

import (
	"bytes"
	"errors"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// detect takes bytes of a response whose format is not known yet. It goes on
// line by line, so that the outcome does not depend on where the body was cut.
func (r *Reader) detect(p []byte) {
	for len(p) > 0 && r.state == Undetermined {
		line := p
		if i := bytes.IndexAny(p, "\r\n"); i >= 0 {
			line = p[:i+1]
		}
		p = p[len(line):]
		r.hold.add(line, r.opts.MaxEvent)
		r.detectLine(line)
	}
	switch {
	case r.state == Opaque:
		r.held = append(r.held, p...)
	case !r.ended && len(p) > 0:
		r.read(p)
	}
}

// detectLine looks at a line, or a part of one, that is already held.
func (r *Reader) detectLine(line []byte) {
	if r.split == nil {
		start, first := r.hold.opening()
		r.framing = framingOf(start, first, r.opts.ContentType)
		switch r.framing {
		case framingUnknown:
			return
		case framingOther:
			r.pass()
			return
		case framingSSE, framingMixed, framingLines, framingArray, framingFrames:
		}
		r.split = r.framing.splitter(r.opts.MaxEvent)
		r.hold.isJSON = r.framing != framingSSE
		r.hold.isBinary = r.framing == framingFrames
		line = r.hold.buf
	}
	r.split.Feed(line)
	r.judgeAll(false)
	if r.state != Undetermined {
		return
	}
	switch err := r.split.Err(); {
	case errors.Is(err, sse.ErrCorruptFrame) && !r.llm:
		r.pass()
	case err != nil:
		r.settle(splitError(err))
	case r.hold.size() > r.opts.MaxEvent+holdSlack:
		r.settle(tooLarge())
	}
}

// detectAtEnd decides what the response was, now that there is no more of it.
func (r *Reader) detectAtEnd() {
	if r.split != nil {
		r.split.Close()
		r.judgeAll(true)
	}
	if r.state != Undetermined {
		return
	}
	if r.guess == nil && !r.llm {
		r.pass()
		return
	}
	if r.guess != nil {
		r.recognised(r.guess)
		return
	}
	r.endOfBody()
}

// settle decides without having seen an event that tells the format, because
// no more may be held.
func (r *Reader) settle(err *event.Error) {
	switch {
	case r.guess != nil:
		r.recognised(r.guess)
	case r.failure != nil:
		r.pass()
	default:
		r.fail(err)
	}
}

// judgeAll looks at the events that are complete, until one of them decides.
func (r *Reader) judgeAll(atEnd bool) {
	for r.state == Undetermined {
		ev, ok := r.split.Next()
		if !ok {
			return
		}
		r.judge(ev, atEnd)
	}
}

// judge looks at an event of a response that is not recognised yet. Comments,
// pings and errors never tell the format.
func (r *Reader) judge(ev sse.Event, atEnd bool) {
	p := probe{name: string(ev.Name), object: objectOf(ev.Data)}
	switch what := common(ev); {
	case what == commonEmpty, p.typ() == "ping":
		return
	case what == commonDone:
		r.judgeDone()
		return
	}
	f := recognise(p, r.framing)
	switch {
	case f != nil:
		r.recognised(f)
	case reportsError(ev):
		r.judgeError(ev, p)
	case atEnd && !p.object.Exists():
		// An event that was cut off tells nothing.
	case p.object.Get("choices").IsArray() && r.framing == framingSSE && saysNothing(p.object):
		r.guess = r.guessByPath()
	default:
		r.pass()
	}
}

// saysNothing reports whether the choices of an event are there but do not
// tell which API they are from: Azure begins with an empty list.
func saysNothing(object gjson.Result) bool {
	first := object.Get("choices.0")
	return !first.Exists() || first.IsObject() && !first.Get("text").Exists()
}

// guessByPath returns which of the APIs that send choices this is, nil where it
// is one that cannot be decoded.
func (r *Reader) guessByPath() *format {
	if name := formatOfPath(r.opts.Path); name == "openai-completions" {
		return formatNamed(name)
	}
	return formatNamed("openai-chat")
}

// judgeDone deals with a [DONE] that comes before anything is known.
func (r *Reader) judgeDone() {
	switch {
	case r.guess != nil:
		r.recognised(r.guess)
	case r.failure != nil:
		r.fail(r.failure)
	case r.llm:
		r.format = formatOfPath(r.opts.Path)
		r.done()
	default:
		r.pass()
	}
}

// judgeError deals with an error that comes before anything is known. On the
// path of an LLM API it is that API's; elsewhere only an error in the shape of
// Anthropic's is surely one, and any other waits for what follows.
func (r *Reader) judgeError(ev sse.Event, p probe) {
	failure := upstreamError(ev)
	switch {
	case r.llm:
		r.format = formatOfPath(r.opts.Path)
		r.fail(failure)
	case p.typ() == "error" && p.object.Get("error.type").Exists() && p.object.Get("error.message").Exists():
		r.fail(failure)
	case r.failure == nil:
		r.failure = failure
	}
}

// recognised starts to decode, from the first byte on.
func (r *Reader) recognised(f *format) {
	r.state = Recognised
	r.format = f.name
	r.means = f.means
	r.decoder = f.new()
	if r.framing == framingSSE && f.framing&framingMixed != 0 {
		r.framing = framingMixed
	}
	r.split = r.framing.splitter(r.opts.MaxEvent)
	body := r.hold.buf
	r.hold, r.guess, r.failure = nil, nil, nil
	r.read(body)
}

// pass gives the response up to be passed on as it is.
func (r *Reader) pass() {
	r.state = Opaque
	r.held = r.hold.buf
	r.hold, r.split, r.guess, r.failure = nil, nil, nil, nil
}
