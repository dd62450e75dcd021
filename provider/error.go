package provider

import (
	"net/http"
)

// Code names why a response failed. The codes are part of the contract with
// clients: they stand in error bodies, error frames, logs and metric labels.
type Code string

// The codes of a response that failed.
const (
	CodeFirstTokenTimeout    Code = "first_token_timeout"    // no output in time
	CodeBetweenTokensTimeout Code = "between_tokens_timeout" // too long a gap between two outputs
	CodeTotalTimeout         Code = "total_timeout"          // the response took too long
	CodeUpstreamError        Code = "upstream_error"         // the provider reported an error in the stream
	CodeUpstreamTruncated    Code = "upstream_truncated"     // the body ended or broke without a terminal event
	CodeEventTooLarge        Code = "event_too_large"        // an event beyond max_event
	CodeInvalidUpstream      Code = "invalid_upstream"       // an event that may have carried output cannot be decoded
	CodeCancelled            Code = "cancelled"              // the cancel endpoint, before anything was sent
	CodeResponseTooLarge     Code = "response_too_large"     // a log beyond max_size
	CodeInterrupted          Code = "interrupted"            // the machine that produced the response died
	CodeDraining             Code = "draining"               // the drain deadline ended the response
)

// Error is why a response failed.
type Error struct {
	Code Code
	// Status is the HTTP status that tells a client the same while nothing
	// of the response is committed.
	Status  int
	Message string
	// Upstream is the provider's own error as a JSON object (compact, valid),
	// nil where there was none.
	Upstream []byte
}

// Error implements the error interface.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Type returns the error's type in the vocabulary that LLM clients know.
func (e *Error) Type() string { return ErrorType(e.Status) }

// ErrorType returns the type that goes with an HTTP status in the vocabulary
// that LLM clients know.
func ErrorType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusServiceUnavailable:
		return "overloaded_error"
	case status == http.StatusGatewayTimeout:
		return "timeout_error"
	case status >= 400 && status < 500:
		return "invalid_request_error"
	default:
		return "api_error"
	}
}
