package sse

import "errors"

// ErrEventTooLarge is the error of a splitter whose input holds an event so
// large that it is not read past any more: it may have no end. A splitter stays
// at this error.
var ErrEventTooLarge = errors.New("sse: event too large")

// Event is one event of a stream. Its slices must not be written to, and are
// valid until the next call of the splitter that returned it.
type Event struct {
	// Name is the value of the event field; empty where there was none.
	Name []byte
	// Data holds the values of the data fields, joined with newlines; for
	// NDJSON the line without its terminator, for an array the element, for a
	// frame its payload.
	Data []byte

	// Bare says that the event is a line with a JSON object among the lines of
	// server-sent events, which the standard would ignore.
	Bare bool
	// Reduced says that the event is larger than the limit, and that Data is
	// what a json.Reducer has kept of its data: nothing where that is no JSON.
	Reduced bool
}

// Splitter is what the framings have in common. The sequence is
//
//	s.Feed(p)
//	for ev, ok := s.Next(); ok; ev, ok = s.Next() { … }
//	if err := s.Err(); err != nil { … }
//
// for every piece of input, and the same with Close in place of Feed at its
// end. p must not change until Next has returned false.
type Splitter interface {
	// Feed takes the next piece of the input. What Next has not yet read of
	// the piece before is lost; after Close and after an error p is ignored.
	Feed(p []byte)
	// Close tells that the input has ended: an event that lacks only its
	// terminator can then be had from Next.
	Close()
	// Next returns the next event that is complete.
	Next() (Event, bool)
	// Err returns ErrEventTooLarge once an event had no end, ErrCorruptFrame
	// once a frame was corrupt, else nil.
	Err() error
	// Reducing reports whether the event that is open is larger than the limit
	// and is JSON as far as it goes.
	Reducing() bool
	// Cut reports, once Next has returned false after Close, whether the input
	// has ended within an event that Next has not returned.
	Cut() bool
}
