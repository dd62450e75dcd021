package sse

// Parser splits a stream of server-sent events, as section 9.2.6 of the
// WHATWG HTML Living Standard interprets one: lines end with LF, CRLF or CR, a
// blank line ends an event, and an event without a data field is none. The
// fields id and retry, fields with unknown names and comments are dropped; a
// line that begins with a space has an unknown field. Bytes that are not UTF-8
// are passed on as they are.
//
// It departs from the standard in two points:
//   - The field error with a value stands for the two lines "event: error" and
//     "data: " with that value. llama.cpp reported errors in this way until
//     September 2025.
//   - The end of the input ends the line and the event that are open, where
//     the standard drops them: servers leave out the last blank line. Such an
//     event is had only after Close, so that the caller can judge it.
//
// And in a third one where NewMixedParser has made it: a line that begins with
// a brace begins a JSON object, of any number of lines, that is an event of its
// own without a name. It ends the event before it. Gemini reports errors in
// this way. After the object, lines are read again.
//
// The name and the joined data of an event have at most maxEvent bytes
// together, and so has a line whose field is dropped. Comments never count.
//
// A Parser is not safe for concurrent use.
type Parser struct {
	input
	lf, cr int // where LF and CR come next in the piece; see input.find

	name    span
	data    span
	ignored int // bytes of a line that is dropped

	head    [5]byte // of a line, its field name as far as it can be a known one
	headLen uint8
	place   place
	field   field
	hasData bool // the event has a data field, which may be empty
	afterCR bool // an LF here belongs to the CR before it

	mixed  bool
	object *Array // reads the object that is open, nil where none is
}

// place is where in a line a Parser is.
type place uint8

const (
	inName     place = iota // in the field name, or before the line's first byte
	afterColon              // one space may come that is not part of the value
	inValue
	inIgnored
	inComment
)

// field is one of the fields that have a meaning here.
type field uint8

const (
	fieldUnknown field = iota
	fieldData
	fieldEvent
	fieldError
)

var (
	errorName = []byte("error")
	newline   = []byte("\n")
)

// NewParser returns a Parser at the start of a stream. maxEvent, in bytes,
// must be positive.
func NewParser(maxEvent int) *Parser {
	return &Parser{input: input{max: maxEvent}}
}

// NewMixedParser is NewParser for a stream with JSON objects among its events.
func NewMixedParser(maxEvent int) *Parser {
	p := NewParser(maxEvent)
	p.mixed = true
	return p
}

// Feed takes the next piece of the stream, to be read by Next.
func (p *Parser) Feed(b []byte) {
	content := p.feed(b)
	p.lf, p.cr = -1, -1
	p.read(content)
}

// Close tells that the stream has ended. An event that is open can then be
// had from Next.
func (p *Parser) Close() {
	p.read(p.endMark())
	p.closed = true
}

// Next returns the next event that is complete. Its slices lie in the piece
// where the event lies whole in it with one line of data.
func (p *Parser) Next() (Event, bool) {
	for p.pos < len(p.piece) {
		if p.object != nil {
			if ev, ok := p.readObject(); ok {
				return ev, true
			}
			continue
		}
		if p.readLine() {
			return p.dispatch(), true
		}
	}
	if p.closed && p.finish() {
		return p.dispatch(), true
	}
	p.name.keep()
	p.data.keep()
	p.done()
	return Event{}, false
}

// dispatch returns the event that is complete and starts the next one.
func (p *Parser) dispatch() Event {
	ev := Event{Name: p.name.bytes(), Data: p.data.bytes()}
	p.name.reset()
	p.data.reset()
	p.hasData = false
	return ev
}

// finish ends what is open at the end of the stream, and reports whether
// there is an event to dispatch.
func (p *Parser) finish() bool {
	p.object = nil // it was cut off
	if p.place != inName || p.headLen > 0 {
		p.endLine()
	}
	return p.hasData
}

// readLine reads on to the end of the line or of the piece, and reports
// whether there is an event to dispatch.
func (p *Parser) readLine() bool {
	if p.afterCR {
		p.afterCR = false
		if p.piece[p.pos] == '\n' {
			p.pos++
			return false
		}
	}
	if p.mixed && p.piece[p.pos] == '{' && p.place == inName && p.headLen == 0 {
		p.object = NewArray(p.max)
		return p.hasData
	}
	end := min(p.find(&p.lf, '\n'), p.find(&p.cr, '\r'))
	p.read(p.piece[p.pos:end])
	switch {
	case p.tooLarge:
		return false
	case end == len(p.piece):
		p.pos = end
		return false
	}
	p.afterCR = p.piece[end] == '\r'
	p.pos = end + 1
	return p.endLine()
}

// readObject reads on to the end of the object or of the piece, and returns the
// object if it is complete.
func (p *Parser) readObject() (Event, bool) {
	a := p.object
	a.Feed(p.piece[p.pos:])
	ev, ok := a.Next()
	switch {
	case ok:
		p.pos += a.pos
		p.object = nil
		p.name.reset() // it must not name the next event
	case a.tooLarge:
		p.fail()
	default:
		p.pos = len(p.piece)
	}
	return ev, ok
}

// read takes the next bytes of a line, its terminator excluded.
func (p *Parser) read(b []byte) {
	if p.place == inName {
		b = p.readName(b)
	}
	if p.place == afterColon && len(b) > 0 {
		p.place = inValue
		if b[0] == ' ' {
			b = b[1:]
		}
	}
	switch p.place {
	case inValue:
		p.readValue(b)
	case inIgnored:
		p.ignored += len(b)
	case inName, afterColon, inComment:
	}
	p.check()
}

// readName takes the bytes of b that belong to the field name and returns the
// rest of b.
func (p *Parser) readName(b []byte) []byte {
	for i, c := range b {
		switch {
		case c == ':' && p.headLen == 0:
			p.place = inComment
			return nil
		case c == ':':
			if p.begin() {
				p.place = afterColon
				return b[i+1:]
			}
			return p.ignore(b[i:])
		case int(p.headLen) == len(p.head):
			return p.ignore(b[i:])
		}
		p.head[p.headLen] = c
		p.headLen++
	}
	return nil
}

// ignore drops the line of an unknown field, which goes on with rest.
func (p *Parser) ignore(rest []byte) []byte {
	p.place = inIgnored
	p.ignored = int(p.headLen)
	return rest
}

// begin starts the value of the field whose name has ended, and reports
// whether that field is known.
func (p *Parser) begin() bool {
	switch string(p.head[:p.headLen]) {
	case "data":
		p.field = fieldData
		p.beginData()
	case "event":
		p.field = fieldEvent
		p.name.reset()
	case "error":
		p.field = fieldError // an error field without a value is none
	default:
		p.field = fieldUnknown
	}
	return p.field != fieldUnknown
}

// beginData starts a line of data.
func (p *Parser) beginData() {
	if p.hasData {
		p.data.add(newline)
	}
	p.hasData = true
}

// readValue takes bytes of the value of a known field.
func (p *Parser) readValue(b []byte) {
	if len(b) == 0 {
		return
	}
	switch p.field {
	case fieldEvent:
		p.name.add(b)
	case fieldError:
		p.name.reset()
		p.name.add(errorName)
		p.field = fieldData
		p.beginData()
		p.data.add(b)
	case fieldData:
		p.data.add(b)
	case fieldUnknown:
	}
}

// endLine ends a line, and reports whether there is an event to dispatch.
func (p *Parser) endLine() bool {
	if p.place == inName {
		if p.headLen == 0 {
			if !p.hasData {
				p.name.reset() // it must not name the next event
			}
			return p.hasData
		}
		if !p.begin() { // a field without a colon
			p.ignored = int(p.headLen)
		}
		p.check()
	}
	p.place, p.headLen, p.ignored = inName, 0, 0
	return false
}

// check fails the Parser where its event or its line has become too large.
func (p *Parser) check() {
	if p.name.size()+p.data.size() > p.max || p.ignored > p.max {
		p.fail()
		p.name, p.data, p.hasData = span{}, span{}, false
	}
}

var _ Splitter = (*Parser)(nil)
