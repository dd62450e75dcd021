package provider

import (
	"errors"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// errInvalid is the error of a Decoder that cannot decode an event.
var errInvalid = errors.New("provider: an event that cannot be decoded")

// maxChoices bounds the index of a choice, and with it what a decoder
// remembers. The largest n that a provider is known to accept is 128.
const maxChoices = 1024

// Decoder translates the events of one response in one wire format. It keeps
// what state the format needs (which index a tool call has, say) and nothing
// else: detection, finish reasons, the end and its error are the Reader's.
type Decoder interface {
	// Decode translates one event and appends what it carries to out. An
	// event that carries nothing appends nothing. The error is errInvalid
	// where the event cannot be decoded; what was appended by then does not
	// count.
	//
	// What means the same in every format does not come here: pings, events
	// without data, data that is empty or [DONE], and events named error. Nor
	// need a decoder look for errors: an event from which it takes nothing, or
	// that has a member error, is asked by the Reader.
	//
	// Output that is no event is told with Silent. Of an event that is larger
	// than the limit the decoder sees what is short in it; where it adds an
	// output that was left out, the response fails.
	Decode(ev sse.Event, out *Events) error
}

// meaning is what the name of an event says about an event that cannot be
// decoded.
type meaning uint8

const (
	mayCarryOutput meaning = iota
	carriesNone
	isEnd
	isIncomplete // the end, for want of tokens
	isFailure    // the end, and not a good one
)
