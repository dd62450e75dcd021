package llmsim

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a way in which a backend misbehaves. A fault "at token k" takes the
// place of token k, counted from 0 over reasoning and answer, at the time at
// which that token was due; k = the number of tokens takes the place of the
// finish (malformed needs a token), and a larger k never comes. A fault that
// ends the stream at token 0 leaves out the events before the first token too.
//
// In an answer that is not streamed, crash, error and error-done are status 500,
// and end and malformed are half of the body with a clean end.
type Fault string

// The faults.
const (
	FaultNone        Fault = ""             // no fault
	FaultDie         Fault = "die"          // at token k the connection is aborted
	FaultEnd         Fault = "end"          // at token k a clean end, without finish and terminator
	FaultHang        Fault = "hang"         // from token k on silence, until the client leaves
	FaultError       Fault = "error"        // at token k the dialect's error event, then a clean end
	FaultErrorDone   Fault = "error-done"   // at token k the error event, then the dialect's terminator
	FaultCrash       Fault = "crash"        // at token k the model dies and its server lives on: status 500 at token 0, else as error
	FaultMalformed   Fault = "malformed"    // the event of token k is cut in its JSON; the stream goes on
	FaultStatus      Fault = "status"       // an HTTP error with Retry-After instead of a response
	FaultNoDone      Fault = "no-done"      // no terminator: no [DONE], message_stop or "done":true
	FaultSlowHeaders Fault = "slow-headers" // the headers come with the first token, not at once (at Ollama they always do)
)

// faultNames lists what ParseFault accepts besides "none".
var faultNames = []Fault{
	FaultDie, FaultEnd, FaultHang, FaultError, FaultErrorDone, FaultCrash,
	FaultMalformed, FaultStatus, FaultNoDone, FaultSlowHeaders,
}

// ParseFault returns the fault of that name; "none" is FaultNone. The error is
// ErrInvalid and lists the names.
func ParseFault(name string) (Fault, error) {
	if name == "none" {
		return FaultNone, nil
	}
	if f := Fault(name); slices.Contains(faultNames, f) {
		return f, nil
	}
	names := make([]string, 0, len(faultNames)+1)
	names = append(names, "none")
	for _, f := range faultNames {
		names = append(names, string(f))
	}
	return FaultNone, fmt.Errorf("%w: unknown fault %q, want one of %s", ErrInvalid, name, strings.Join(names, ", "))
}

// stops reports whether the fault ends the stream at its token.
func (f Fault) stops() bool {
	return f == FaultDie || f == FaultEnd || f == FaultHang || f == FaultError || f == FaultErrorDone || f == FaultCrash
}
