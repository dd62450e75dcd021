package sse

import "github.com/caddy-llmstream/caddy-llmstream/internal/json"

// value collects the data of an event: all of it up to the limit, and of what
// is larger the short parts.
type value struct {
	span
	reducer *json.Reducer // nil within the limit
	past    int           // bytes of the stream that were reduced
}

// What is read past of one event, in bytes: so many limits, and not less than
// this.
const (
	maxPastLimits = 16
	minPast       = 16 << 20
)

// add appends b, which stays unchanged until keep or reset. The value is
// reduced where it is beyond the limit. It reports whether the event may go on.
func (v *value) add(b []byte, limit int) bool {
	if v.reducer == nil {
		v.span.add(b)
		if v.span.size() <= limit {
			return true
		}
		v.reducer = json.NewReducer(limit)
		b = v.span.bytes()
		defer func() { v.span = span{} }()
	}
	v.reducer.Write(b)
	v.past += len(b)
	return v.past <= max(minPast, maxPastLimits*limit)
}

// frame counts n bytes of the stream that are no part of the value, so that an
// event of short lines is read past no further than one of a long line.
func (v *value) frame(n int) {
	if v.reducer != nil {
		v.past += n
	}
}

// reset empties the value; see span.
func (v *value) reset() {
	v.span.reset()
	v.reducer, v.past = nil, 0
}

// empty reports whether nothing was added.
func (v *value) empty() bool { return v.reducer == nil && v.span.size() == 0 }

// reducing is Splitter's Reducing.
func (v *value) reducing() bool { return v.reducer != nil && v.reducer.Bytes() != nil }

// event returns the event with this value.
func (v *value) event() Event {
	if v.reducer != nil {
		return Event{Data: v.reducer.Bytes(), Reduced: true}
	}
	return Event{Data: v.span.bytes()}
}
