package llmstream

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// cancelled is the terminal event of a response that was stopped on request,
// or because nobody reads it.
var cancelled = &provider.Event{Kind: provider.Done, Result: &provider.Result{Finish: provider.FinishCancelled}}

// tooLarge is the terminal event of a response whose log is beyond max_size.
var tooLarge = &provider.Event{Kind: provider.Failed, Err: &provider.Error{
	Code: provider.CodeResponseTooLarge, Status: http.StatusBadGateway,
	Message: "the response is larger than what is kept of one",
}}

// causeTerminal returns the terminal event that goes with the cause for which
// we have cancelled an upstream call; nil where we have not.
func causeTerminal(ctx context.Context) *provider.Event {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, fanout.ErrCancelled), errors.Is(cause, fanout.ErrAbandoned):
		return cancelled
	case errors.Is(cause, fanout.ErrTooLarge):
		return tooLarge
	}
	return nil
}
