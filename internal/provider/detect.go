package provider

import (
	"bytes"
	"slices"
	"strings"

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
		if r.hold != nil {
			r.hold.add(line, r.opts.MaxEvent)
		}
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
		r.framing = framingOf(start, first, r.opts.ContentType, r.llm)
		switch r.framing {
		case framingUnknown:
			return
		case framingOther:
			r.pass()
			return
		case framingLines:
			if r.isJSON() && !r.comesInLines() {
				r.pass() // a whole answer, however slowly it comes
				return
			}
		case framingSSE, framingMixed, framingArray, framingFrames:
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
	switch {
	case r.opensOther():
		r.pass()
	case r.split.Err() != nil && !r.llm:
		r.pass()
	case r.split.Err() != nil:
		r.settle(splitError(r.split.Err()))
	case r.llm && r.leading > 0 && r.hold != nil && r.hold.size() > maxLeading && r.hold.blankLine():
		r.pass()
	case r.hold != nil && r.hold.size() > r.opts.MaxEvent+holdSlack:
		r.overflow()
	}
}

// What may come on the path of an LLM API before the first event that tells the
// format: gateways put events of their own there.
const (
	maxLeading       = 64 << 10 // bytes
	maxLeadingEvents = 8
)

// otherAPIs begin the names of the events of streaming APIs that are none of
// ours, whose events may be large.
var otherAPIs = []string{"image_generation.", "image_edit.", "speech.", "transcript."}

// isOther reports whether the name or the type of an event is of such an API.
func isOther(name string) bool {
	return slices.ContainsFunc(otherAPIs, func(api string) bool { return strings.HasPrefix(name, api) })
}

// opensOther reports whether the event that is open is of such an API.
func (r *Reader) opensOther() bool {
	parser, ok := r.split.(*sse.Parser)
	return ok && r.hold != nil && r.guess == nil && isOther(view(parser.OpenName()))
}

// mayLead reports whether an event that tells nothing may come before those of a
// known format. One without a name that is no object is the text of a stream
// that nobody knows.
func (r *Reader) mayLead(p probe) bool {
	return r.llm && r.framing == framingSSE && r.leading < maxLeadingEvents &&
		(p.name != "" || p.object.Exists()) && !isOther(p.typ())
}

// overflow deals with a response that has more than may be held and is not
// recognized. On the path of an LLM API the event that is open may still tell
// the format, and carry nothing that we emit: it is read past, and what was
// held is given up.
func (r *Reader) overflow() {
	if r.llm && r.guess == nil && r.failure == nil && r.split.Reducing() {
		r.hold = nil
		return
	}
	r.settle(tooLarge())
}

// detectAtEnd decides what the response was, now that there is no more of it.
func (r *Reader) detectAtEnd() {
	if r.split != nil {
		r.split.Close()
		r.judgeAll(true)
	}
	switch {
	case r.state != Undetermined:
	case r.hold == nil:
		r.fail(tooLarge())
	case r.guess != nil:
		r.recognized(r.guess)
	case !r.llm, r.isJSON(), r.leading > 0 && !r.broken && !r.split.Cut():
		r.pass()
	default:
		r.endOfBody()
	}
}

// isJSON reports whether the response is what its content type says, JSON, and
// not a stream under a wrong label.
func (r *Reader) isJSON() bool {
	return mediaType(r.opts.ContentType) == "application/json" && r.framing != framingSSE
}

// comesInLines reports whether the API that the request path names answers in
// lines of JSON.
func (r *Reader) comesInLines() bool {
	f := formatNamed(formatOfPath(r.opts.Path))
	return f != nil && f.framing&framingLines != 0
}

// settle decides without having seen an event that tells the format, because
// no more may be held.
func (r *Reader) settle(err *event.Error) {
	switch {
	case r.guess != nil:
		r.recognized(r.guess)
	case r.failure != nil:
		r.pass()
	default:
		r.fail(err)
	}
}

// judgeAll looks at the events that are complete, until one of them decides.
func (r *Reader) judgeAll(atEnd bool) {
	for r.state == Undetermined && r.split != nil {
		ev, ok := r.split.Next()
		if !ok {
			return
		}
		r.judge(ev, atEnd)
	}
}

// judge looks at an event of a response that is not recognized yet. Comments,
// pings and errors never tell the format.
func (r *Reader) judge(ev sse.Event, atEnd bool) {
	p := probe{name: string(ev.Name), api: formatOfPath(r.opts.Path), object: objectOf(ev.Data)}
	switch what := common(&ev); {
	case what == commonEmpty, what == commonPing, p.typ() == "ping":
		return
	case what == commonDone:
		r.judgeDone()
		return
	}
	var f *format
	if !ev.Bare {
		f = recognize(p, r.framing)
	}
	switch {
	case f != nil && r.hold == nil:
		r.decodeFrom(f, ev, atEnd)
	case f != nil:
		r.recognized(f)
	case r.reportsError(ev):
		r.judgeError(ev, p)
	case ev.Bare:
	case r.hold == nil:
		r.fail(tooLarge())
	case ev.Reduced && r.llm:
		r.settle(tooLarge())
	case atEnd && !p.object.Exists():
		r.broken = true // an event that was cut off tells nothing
	case p.object.Get("choices").IsArray() && r.framing == framingSSE && saysNothing(p.object):
		r.guess = r.guessByPath()
	case r.mayLead(p):
		r.leading++
	default:
		r.pass()
	}
}

// reportsError reports whether an event is an error. What looks like one only in
// some backend's words is one only on the path of an LLM API.
func (r *Reader) reportsError(ev sse.Event) bool {
	if r.llm {
		return isComplaint(ev)
	}
	return isBlatant(ev)
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
		r.recognized(r.guess)
	case r.failure != nil:
		r.fail(r.failure)
	case r.llm && r.leading == 0:
		r.format = formatOfPath(r.opts.Path)
		r.fail(truncated())
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

// recognized starts to decode, from the first byte on.
func (r *Reader) recognized(f *format) {
	body := r.hold.buf
	r.begin(f)
	r.split = r.framing.splitter(r.opts.MaxEvent)
	r.read(body)
}

// decodeFrom starts to decode with the event that has told the format, because
// what came before it is gone; it told nothing.
func (r *Reader) decodeFrom(f *format, ev sse.Event, atEnd bool) {
	split := r.split
	r.begin(f)
	r.split = split
	if r.decode(&ev, atEnd); !r.ended {
		r.drain(atEnd)
	}
}

// begin settles the format of the response.
func (r *Reader) begin(f *format) {
	r.state = Recognized
	r.format = f.name
	r.means = f.means
	r.endless = f.endless
	r.decoder = f.new()
	if r.framing == framingSSE && f.framing&framingMixed != 0 {
		r.framing = framingMixed
	}
	r.hold, r.guess, r.failure = nil, nil, nil
}

// pass gives the response up to be passed on as it is.
func (r *Reader) pass() {
	r.state = Opaque
	r.held = r.hold.buf
	r.hold, r.split, r.guess, r.failure = nil, nil, nil, nil
}
