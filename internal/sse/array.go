package sse

import "github.com/caddy-llmstream/caddy-llmstream/internal/json"

// Array splits a JSON array that arrives piece by piece, which is how Gemini
// streams unless asked for server-sent events. Every element is an event
// without a name, its Data the element's bytes, as soon as its last byte is
// in; that of a number or literal is known by the byte after it. After the
// closing bracket there is nothing more.
//
// Array finds where values end and no more: commas are optional, and what
// stands between brackets is not validated. A value outside of an array, such
// as the bare object with which Gemini reports an error, is an event too. An
// element that the end of the input cuts off is dropped; Ended then says
// false.
//
// An element of more than maxEvent bytes is reduced. White space between
// elements does not count. An Array is not safe for concurrent use.
type Array struct {
	input
	scan    json.Scanner // of the element
	element value
	within  within
	opened  bool
	ended   bool
}

// within is what an Array is reading.
type within uint8

const (
	withinNothing within = iota // between two elements
	withinElement               // an object, an array or a string
	withinLiteral               // a number, true, false, null, or what is no JSON
)

// NewArray returns an Array at the start of a stream. maxEvent, in bytes, must
// be positive.
func NewArray(maxEvent int) *Array {
	return &Array{input: input{max: maxEvent}}
}

// Feed takes the next piece of the stream, to be read by Next.
func (a *Array) Feed(b []byte) {
	a.readContent(a.feed(b))
}

// Close tells that the stream has ended. A number or literal that stands last
// can then be had from Next.
func (a *Array) Close() {
	a.readContent(a.endMark())
	a.closed = true
}

// Ended reports whether the closing bracket of the array was read.
func (a *Array) Ended() bool { return a.ended }

// Next returns the next element that is complete. It lies in the piece where
// the piece has it whole.
func (a *Array) Next() (Event, bool) {
	for a.pos < len(a.piece) {
		if a.within == withinNothing {
			a.skip()
			continue
		}
		start := a.pos
		complete := a.readElement()
		a.add(a.piece[start:a.pos])
		if complete && !a.tooLarge {
			return a.dispatch(), true
		}
	}
	if a.closed && a.within == withinLiteral {
		return a.dispatch(), true
	}
	a.element.keep()
	a.done()
	return Event{}, false
}

// dispatch returns the element that is complete and starts the next one.
func (a *Array) dispatch() Event {
	ev := a.element.event()
	a.element.reset()
	a.within = withinNothing
	return ev
}

// add appends to the element.
func (a *Array) add(b []byte) {
	if !a.element.add(b, a.max) {
		a.fail()
		a.element, a.within = value{}, withinNothing
	}
}

// Reducing implements Splitter.
func (a *Array) Reducing() bool { return a.element.reducing() }

// readContent takes the first bytes of a byte order mark that was none. They
// begin a value that is no JSON.
func (a *Array) readContent(b []byte) {
	if len(b) > 0 {
		a.within = withinLiteral
		a.add(b)
	}
}

// skip reads on to the first byte of an element or to the end of the piece.
func (a *Array) skip() {
	if a.ended {
		a.pos = len(a.piece)
	}
	for ; a.pos < len(a.piece); a.pos++ {
		switch c := a.piece[a.pos]; {
		case json.IsSpace(c) || c == ',':
		case c == ']':
			a.ended = true
			a.pos = len(a.piece)
			return
		case c == '[' && !a.opened:
			a.opened = true
		case c == '{' || c == '[' || c == '"':
			a.within = withinElement
			return
		default:
			a.within = withinLiteral
			return
		}
	}
}

// readElement reads on to the end of the element or of the piece, and reports
// whether the element is complete.
func (a *Array) readElement() bool {
	if a.within == withinLiteral {
		return a.readLiteral()
	}
	for a.pos < len(a.piece) {
		if n := a.scan.Content(a.piece[a.pos:]); n > 0 {
			a.pos += n
			continue
		}
		class := a.scan.Next(a.piece[a.pos])
		a.pos++
		if (class == json.Closing || class == json.End) && a.scan.Depth() <= 0 {
			a.scan = json.Scanner{}
			return true
		}
	}
	return false
}

// readLiteral reads on to the byte after a number or literal.
func (a *Array) readLiteral() bool {
	for ; a.pos < len(a.piece); a.pos++ {
		if c := a.piece[a.pos]; json.IsSpace(c) || c == ',' || c == ']' {
			return true
		}
	}
	return false
}

// Cut implements Splitter.
func (a *Array) Cut() bool { return !a.element.empty() || a.opened && !a.ended }

var _ Splitter = (*Array)(nil)
