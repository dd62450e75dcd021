package provider

import "github.com/caddy-llmstream/caddy-llmstream/sse"

// Decoder translates the events of one response in one wire format. It keeps
// what state the format needs (which index a tool call has, say) and nothing
// else: detection, finish reasons, the end and its error are the Reader's.
type Decoder interface {
	// Decode translates one event and appends what it carries to out. An
	// event that carries nothing appends nothing. The error is errInvalid
	// where the event cannot be decoded.
	Decode(ev sse.Event, out *Events) error
}

// Events collects canonical events. Its memory is used again after Reset.
type Events struct {
	list []Event
	text []byte // where escaped text goes that is not as the wire has it
}
