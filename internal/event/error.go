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

// Permanent reports whether the same request would fail in the same way again.
// An HTTP answer with such an error carries "x-should-retry: false", which the
// official SDKs heed: they would try, and pay, three times.
func (e *Error) Permanent() bool {
	return e.Code == CodeEventTooLarge || e.Code == CodeInvalidUpstream
}

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
