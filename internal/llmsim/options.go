package llmsim

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// MaxTokens bounds the tokens of a response, and its reasoning tokens as well.
const MaxTokens = 1_000_000

// The request headers that override an option for one request. A value that
// cannot be used is answered with status 400 and an error that names the header.
const (
	HeaderTokens    = "X-Sim-Tokens"    //nolint:gosec // a count of tokens, no credential
	HeaderInterval  = "X-Sim-Interval"  // a Go duration such as 40ms
	HeaderTTFT      = "X-Sim-TTFT"      // a Go duration
	HeaderReasoning = "X-Sim-Reasoning" // a count of tokens
	HeaderFault     = "X-Sim-Fault"     // the name of a Fault, or none
	HeaderFaultAt   = "X-Sim-Fault-At"  // a token, from 0
	HeaderStatus    = "X-Sim-Status"    // 400 to 599
	HeaderServer    = "X-Sim-Server"    // the name of a Server, or none
)

// ErrInvalid is wrapped by the errors about options and headers that cannot be
// used.
var ErrInvalid = errors.New("llmsim: invalid setting")

// Options say what a response is like. They hold as they are: a zero value is
// zero tokens without any pause.
type Options struct {
	// Tokens is the length of the answer, 0 to MaxTokens. A request can ask for
	// less, with max_tokens and its like; it then ends for that reason. An answer
	// that is a tool call has a length of its own.
	Tokens int
	// Interval is the time from one token to the next.
	Interval time.Duration
	// TTFT is the time to the first token, of reasoning or answer.
	TTFT time.Duration
	// Reasoning is how many tokens of reasoning precede the answer, 0 to MaxTokens.
	Reasoning int
	// Fault is what goes wrong, and FaultAt the token where it does; see Fault.
	Fault   Fault
	FaultAt int
	// Status is the HTTP status of FaultStatus, 400 to 599; 0 is 503.
	Status int
	// Server is whose ways the APIs have; see Server.
	Server Server
}

// Validate returns an error that wraps ErrInvalid and names the first option
// that is out of its bounds.
func (o Options) Validate() error {
	switch {
	case o.Tokens < 0 || o.Tokens > MaxTokens:
		return fmt.Errorf("%w: tokens is %d, want 0 to %d", ErrInvalid, o.Tokens, MaxTokens)
	case o.Reasoning < 0 || o.Reasoning > MaxTokens:
		return fmt.Errorf("%w: reasoning is %d, want 0 to %d", ErrInvalid, o.Reasoning, MaxTokens)
	case o.Interval < 0:
		return fmt.Errorf("%w: interval is %v, want 0 or more", ErrInvalid, o.Interval)
	case o.TTFT < 0:
		return fmt.Errorf("%w: ttft is %v, want 0 or more", ErrInvalid, o.TTFT)
	case o.FaultAt < 0:
		return fmt.Errorf("%w: fault_at is %d, want 0 or more", ErrInvalid, o.FaultAt)
	case o.Status != 0 && (o.Status < 400 || o.Status > 599):
		return fmt.Errorf("%w: status is %d, want 400 to 599", ErrInvalid, o.Status)
	}
	if o.Fault != FaultNone {
		if _, err := ParseFault(string(o.Fault)); err != nil {
			return err
		}
	}
	if o.Server != ServerNone {
		if _, err := ParseServer(string(o.Server)); err != nil {
			return err
		}
	}
	return nil
}

// withHeaders returns the options as the headers of one request change them.
func (o Options) withHeaders(h http.Header) (Options, error) {
	err := errors.Join(
		intHeader(h, HeaderTokens, 0, MaxTokens, &o.Tokens),
		durationHeader(h, HeaderInterval, &o.Interval),
		durationHeader(h, HeaderTTFT, &o.TTFT),
		intHeader(h, HeaderReasoning, 0, MaxTokens, &o.Reasoning),
		faultHeader(h, HeaderFault, &o.Fault),
		intHeader(h, HeaderFaultAt, 0, MaxTokens*2, &o.FaultAt),
		intHeader(h, HeaderStatus, 400, 599, &o.Status),
		serverHeader(h, HeaderServer, &o.Server),
	)
	return o, err
}

func intHeader(h http.Header, name string, low, high int, dst *int) error {
	if len(h.Values(name)) == 0 {
		return nil
	}
	n, err := strconv.Atoi(h.Get(name))
	if err != nil || n < low || n > high {
		return fmt.Errorf("%w: header %s is %q, want a whole number from %d to %d", ErrInvalid, name, h.Get(name), low, high)
	}
	*dst = n
	return nil
}

func durationHeader(h http.Header, name string, dst *time.Duration) error {
	if len(h.Values(name)) == 0 {
		return nil
	}
	d, err := time.ParseDuration(h.Get(name))
	if err != nil || d < 0 {
		return fmt.Errorf("%w: header %s is %q, want a duration such as 40ms", ErrInvalid, name, h.Get(name))
	}
	*dst = d
	return nil
}

func faultHeader(h http.Header, name string, dst *Fault) error {
	if len(h.Values(name)) == 0 {
		return nil
	}
	f, err := ParseFault(h.Get(name))
	if err != nil {
		return fmt.Errorf("header %s: %w", name, err)
	}
	*dst = f
	return nil
}

func serverHeader(h http.Header, name string, dst *Server) error {
	if len(h.Values(name)) == 0 {
		return nil
	}
	s, err := ParseServer(h.Get(name))
	if err != nil {
		return fmt.Errorf("header %s: %w", name, err)
	}
	*dst = s
	return nil
}
