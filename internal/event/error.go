package event

import "net/http"

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
