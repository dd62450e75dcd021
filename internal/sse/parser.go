package sse

import "bytes"

// Parser splits a stream of server-sent events, as section 9.2.6 of the
// WHATWG HTML Living Standard interprets one: lines end with LF, CRLF or CR, a
// blank line ends an event, and an event without a data field is none. The
// fields id and retry, fields with unknown names and comments are dropped; a
// line that begins with a space has an unknown field. Bytes that are not UTF-8
// are passed on as they are.
//
// It departs from the standard in three points:
//
//   - The field error with a value stands for the two lines "event: error" and
//     "data: " with that value. llama.cpp reported errors in this way until
//     September 2025.
//
//   - The end of the input ends the line and the event that are open, where
//     the standard drops them: servers leave out the last blank line. Such an
//     event is had only after Close, so that the caller can judge it.
//
//   - A line that begins with a brace is an event of its own without a name,
//     and is marked as bare. It ends the event before it. Gateways report errors
//     in this way. Where NewMixedParser has made the Parser, it is a JSON object
//     of any number of lines, as Gemini sends them, and no less than the others.
//     After the object, lines are read again.
//
// Joined data of more than maxEvent bytes is reduced. Of the name of an event,
// 256 bytes are read, which is more than any that means something has.
//
// A Parser is not safe for concurrent use.
type Parser struct {
	input
	lf, cr int // where LF and CR come next in the piece; see input.find

	name span
	data value

	head    [5]byte // of a line, its field name as far as it can be a known one
	headLen uint8
	place   place
	field   field
	hasData bool // the event has a data field, which may be empty
	afterCR bool // an LF here belongs to the CR before it

	cut    bool // the stream has ended within an event
	mixed  bool
	object *Array // reads the object that is open, nil where none is
}

// place is where in a line a Parser is.
type place uint8

const (
	inName     place = iota // in the field name, or before the line's first byte
	afterColon              // one space may come that is not part of the value
	inValue
	inIgnored // an unknown field, or a comment
)

// field is one of the fields that have a meaning here.
type field uint8

const (
	fieldUnknown field = iota
	fieldData
	fieldEvent
	fieldError
	fieldBare // a line that is a JSON object
)

// maxName is how much of the name of an event is read, in bytes.
const maxName = 256

var (
	errorName = []byte("error")
	newline   = []byte("\n")
	dataField = []byte("data:")
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
	if len(content) > 0 {
		p.read(content)
	}
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
	ev := p.data.event()
	ev.Name = p.name.bytes()
	ev.Bare = p.field == fieldBare
	p.name.reset()
	p.data.reset()
	p.hasData = false
	p.field = fieldUnknown
	return ev
}

// finish ends what is open at the end of the stream, and reports whether
// there is an event to dispatch.
func (p *Parser) finish() bool {
	if p.object != nil {
		p.object, p.cut = nil, true
	}
	if p.place != inName || p.headLen > 0 {
		p.cut = p.cut || p.place == inName
		p.endLine()
	}
	p.cut = p.cut || p.name.size() > 0 && !p.hasData
	return p.hasData
}

// OpenName returns the name of the event that is open, empty where its line has
// not ended. It is valid until the next call of the Parser.
func (p *Parser) OpenName() []byte {
	if p.field == fieldEvent && p.place != inName {
		return nil
	}
	return p.name.bytes()
}

// Cut implements Splitter.
func (p *Parser) Cut() bool { return p.cut }

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
	if p.piece[p.pos] == '{' && p.place == inName && p.headLen == 0 {
		if p.hasData {
			return true
		}
		p.beginObject()
		if p.mixed {
			return false
		}
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

// beginObject begins what a brace at the start of a line begins.
func (p *Parser) beginObject() {
	p.name.reset() // it must not name the next event
	if p.mixed {
		p.object = NewArray(p.max)
		return
	}
	p.place, p.field, p.hasData = inValue, fieldBare, true
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
		if p.headLen == 0 && bytes.HasPrefix(b, dataField) { // nearly every line
			p.field, p.place = fieldData, afterColon
			p.beginData()
			b = b[len(dataField):]
		} else {
			b = p.readName(b)
		}
	}
	if p.place == afterColon && len(b) > 0 {
		p.place = inValue
		if b[0] == ' ' {
			b = b[1:]
		}
	}
	if p.place == inValue {
		p.readValue(b)
	}
}

// readName takes the bytes of b that belong to the field name and returns the
// rest of b.
func (p *Parser) readName(b []byte) []byte {
	for i, c := range b {
		switch {
		case c == ':' && p.headLen == 0:
			p.place = inIgnored
			return nil
		case c == ':':
			if p.begin() {
				p.place = afterColon
				return b[i+1:]
			}
			p.place = inIgnored
			return nil
		case int(p.headLen) == len(p.head):
			p.place = inIgnored
			return nil
		}
		p.head[p.headLen] = c
		p.headLen++
	}
	return nil
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
		p.data.frame(len(dataField))
		p.addData(newline)
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
		p.name.add(b[:min(len(b), maxName-p.name.size())])
	case fieldError:
		p.name.reset()
		p.name.add(errorName)
		p.field = fieldData
		p.beginData()
		p.addData(b)
	case fieldData, fieldBare:
		p.addData(b)
	case fieldUnknown:
	}
}

// addData takes bytes of data.
func (p *Parser) addData(b []byte) {
	if !p.data.add(b, p.max) {
		p.fail()
		p.name, p.data, p.hasData = span{}, value{}, false
	}
}

// Reducing implements Splitter.
func (p *Parser) Reducing() bool {
	return p.data.reducing() || p.object != nil && p.object.Reducing()
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
		p.begin() // a field without a colon
	}
	isBare := p.place == inValue && p.field == fieldBare
	p.place, p.headLen = inName, 0
	return isBare
}

var _ Splitter = (*Parser)(nil)
