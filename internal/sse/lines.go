package sse

import "bytes"

// Lines splits newline-delimited JSON: every line is an event without a name,
// its Data the line without the LF or CRLF that ends it. A byte order mark at
// the start and lines with nothing but white space are skipped. The end of the
// input ends the last line too; that event is had only after Close.
//
// A line of more than maxEvent bytes is reduced. Lines is not safe for concurrent use.
type Lines struct {
	input
	line    value
	solid   bool // the line has more than white space
	afterCR bool // a CR is left out of line until the byte after it is known
}

var carriageReturn = []byte("\r")

// NewLines returns a Lines at the start of a stream. maxEvent, in bytes, must
// be positive.
func NewLines(maxEvent int) *Lines {
	return &Lines{input: input{max: maxEvent}}
}

// Feed takes the next piece of the stream, to be read by Next.
func (l *Lines) Feed(b []byte) { l.read(l.feed(b)) }

// Close tells that the stream has ended. A last line without a terminator can
// then be had from Next.
func (l *Lines) Close() {
	l.read(l.endMark())
	l.closed = true
}

// Next returns the next line that is complete. It lies in the piece where the
// piece has it whole.
func (l *Lines) Next() (Event, bool) {
	for l.pos < len(l.piece) {
		rest := l.piece[l.pos:]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			l.pos = len(l.piece)
			l.read(rest)
			break
		}
		l.pos += end + 1
		l.read(rest[:end])
		if l.solid {
			return l.dispatch(), true
		}
		l.dispatch()
	}
	if l.closed && l.solid {
		return l.dispatch(), true
	}
	l.line.keep()
	l.done()
	return Event{}, false
}

// dispatch returns the line that is complete and starts the next one.
func (l *Lines) dispatch() Event {
	ev := l.line.event()
	l.line.reset()
	l.solid, l.afterCR = false, false
	return ev
}

// read takes the next bytes of a line, its LF excluded.
func (l *Lines) read(b []byte) {
	if len(b) == 0 {
		return
	}
	if l.afterCR { // no LF came after it
		l.add(carriageReturn)
	}
	b, l.afterCR = bytes.CutSuffix(b, carriageReturn)
	if !l.solid {
		l.solid = len(bytes.TrimLeft(b, " \t\r")) > 0
	}
	l.add(b)
}

// add appends to the line.
func (l *Lines) add(b []byte) {
	if !l.line.add(b, l.max) {
		l.fail()
		l.line, l.solid = value{}, false
	}
}

// Reducing implements Splitter.
func (l *Lines) Reducing() bool { return l.line.reducing() }

// Cut implements Splitter: the last line needs no terminator.
func (l *Lines) Cut() bool { return false }

var _ Splitter = (*Lines)(nil)
