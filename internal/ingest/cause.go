package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// The causes with which upstream calls are cancelled, beside those of fanout and
// timeouts.
var (
	// ErrClientGone: the only client of the response has left.
	ErrClientGone = errors.New("the client has left")
	// ErrDraining: the drain deadline of the exit has passed.
	ErrDraining = errors.New("the server is shutting down")
	// ErrInterrupted: the response cannot go on in this process, for all that
	// read it anywhere.
	ErrInterrupted = errors.New("the response is interrupted")
	// ErrRequestTimeout: the request body did not come in time.
	ErrRequestTimeout = errors.New("the request body did not come in time")
	// errLingered: the upstream stays open after its terminal event.
	errLingered = errors.New("the upstream stayed open after the end of the response")
)

// WithCancelCause is like context.WithCancelCause for an upstream call. What
// makes the call sees a cancellation as when the client leaves: reverse_proxy
// neither tries again nor takes the upstream for down.
func WithCancelCause(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, func(cause error) {
		if cause != nil {
			cause = cancelError{cause}
		}
		cancel(cause)
	}
}

// cancelError is a cause that counts as context.Canceled too.
type cancelError struct{ error }

// Unwrap returns what errors.Is and errors.As find.
func (e cancelError) Unwrap() []error { return []error{e.error, context.Canceled} }

// terminalOf returns the terminal event that goes with the cause for which we
// have cancelled an upstream call; nil where we have not.
func terminalOf(ctx context.Context) *event.Event {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, fanout.ErrCancelled), errors.Is(cause, fanout.ErrAbandoned):
		return event.TerminalCancelled
	case errors.Is(cause, fanout.ErrTooLarge):
		return event.TerminalTooLarge
	case errors.Is(cause, ErrDraining):
		return event.TerminalDraining
	case errors.Is(cause, ErrInterrupted):
		return event.TerminalInterrupted
	case errors.Is(cause, ErrRequestTimeout):
		return event.TerminalRequestTimeout
	default:
		return timeoutTerminal(cause)
	}
}

// timeoutTerminal returns the terminal event of a response that took too long;
// nil where the cause is another.
func timeoutTerminal(cause error) *event.Event {
	timeout, ok := errors.AsType[*timeouts.TimeoutError](cause)
	if !ok {
		return nil
	}
	return &event.Event{Kind: event.Failed, Err: &event.Error{
		Code:    event.Code(timeout.Code()),
		Status:  http.StatusGatewayTimeout,
		Message: timeoutMessage(timeout.Cause, timeout.Limit),
	}}
}

func timeoutMessage(cause timeouts.Cause, limit time.Duration) string {
	switch cause {
	case timeouts.FirstToken:
		return fmt.Sprintf("the model did not answer within %v", limit)
	case timeouts.BetweenTokens:
		return fmt.Sprintf("the model was silent for %v", limit)
	default:
		return fmt.Sprintf("the response took longer than %v", limit)
	}
}
