package timeouts

import (
	"fmt"
	"time"
)

// Cause names the timeout that ended a stream. Its values are the codes of
// the contract with clients.
type Cause string

// The causes.
const (
	FirstToken    Cause = "first_token_timeout"    // no model output in time
	BetweenTokens Cause = "between_tokens_timeout" // too long a gap between two outputs
	Total         Cause = "total_timeout"          // the response as a whole took too long
)

// TimeoutError says which timeout ended a stream. It is meant to be the cause
// of a cancelled context, and to be found there with errors.As.
type TimeoutError struct {
	Cause Cause
	Limit time.Duration // what was configured
}

// Error implements the error interface.
func (e *TimeoutError) Error() string {
	switch e.Cause {
	case FirstToken:
		return fmt.Sprintf("timeouts: no model output within %v", e.Limit)
	case BetweenTokens:
		return fmt.Sprintf("timeouts: no further model output within %v", e.Limit)
	default:
		return fmt.Sprintf("timeouts: the response took longer than %v", e.Limit)
	}
}

// Code returns the name of the timeout in error bodies, logs and metrics.
func (e *TimeoutError) Code() string { return string(e.Cause) }

var _ error = (*TimeoutError)(nil)
