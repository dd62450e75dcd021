package sse

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
// An element has at most maxEvent bytes. White space between elements does not
// count. An Array is not safe for concurrent use.
type Array struct {
	input
	quote, backslash int // where they come next in the piece; see input.find

	element span
	depth   int // open brackets of the element, of both kinds
	within  within
	opened  bool
	ended   bool
}

// within is what an Array is reading.
type within uint8

const (
	withinNothing within = iota // between two elements
	withinBrackets
	withinString
	withinEscape  // in a string, after a backslash
	withinLiteral // a number, true, false, null, or what is no JSON
)

// NewArray returns an Array at the start of a stream. maxEvent, in bytes, must
// be positive.
func NewArray(maxEvent int) *Array {
	return &Array{input: input{max: maxEvent}}
}

// Feed takes the next piece of the stream, to be read by Next.
func (a *Array) Feed(b []byte) {
	content := a.feed(b)
	a.quote, a.backslash = -1, -1
	a.readContent(content)
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
	ev := Event{Data: a.element.bytes()}
	a.element.reset()
	a.within = withinNothing
	return ev
}

// add appends to the element.
func (a *Array) add(b []byte) {
	a.element.add(b)
	if a.element.size() > a.max {
		a.fail()
		a.element, a.within = span{}, withinNothing
	}
}

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
		case isSpace(c) || c == ',':
		case c == ']':
			a.ended = true
			a.pos = len(a.piece)
			return
		case c == '[' && !a.opened:
			a.opened = true
		case c == '{' || c == '[' || c == '"':
			a.within = withinBrackets
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
	for a.pos < len(a.piece) {
		complete := false
		switch a.within {
		case withinLiteral:
			return a.readLiteral()
		case withinString:
			complete = a.readString() && a.depth == 0
		case withinEscape:
			a.pos++
			a.within = withinString
		case withinBrackets, withinNothing:
			complete = a.readBrackets()
		}
		if complete {
			return true
		}
	}
	return false
}

// readLiteral reads on to the byte after a number or literal.
func (a *Array) readLiteral() bool {
	for ; a.pos < len(a.piece); a.pos++ {
		if c := a.piece[a.pos]; isSpace(c) || c == ',' || c == ']' {
			return true
		}
	}
	return false
}

// readString reads on to the end of a string or to an escape in it, and
// reports whether the string is complete.
func (a *Array) readString() bool {
	quote := a.find(&a.quote, '"')
	if backslash := a.find(&a.backslash, '\\'); backslash < quote {
		a.pos = backslash + 1
		a.within = withinEscape
		return false
	}
	if quote == len(a.piece) {
		a.pos = quote
		return false
	}
	a.pos = quote + 1
	a.within = withinBrackets
	return true
}

// readBrackets reads what is outside of strings, on to the next string or to
// the bracket that closes the element, and reports whether it came to that.
func (a *Array) readBrackets() bool {
	for a.pos < len(a.piece) {
		c := a.piece[a.pos]
		a.pos++
		switch c {
		case '"':
			a.within = withinString
			return false
		case '{', '[':
			a.depth++
		case '}', ']':
			a.depth--
			if a.depth == 0 {
				return true
			}
		}
	}
	return false
}

// isSpace reports whether c is white space of JSON (RFC 8259, section 2).
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

var _ Splitter = (*Array)(nil)
