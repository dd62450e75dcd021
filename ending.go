package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// cancelled is the terminal event of a response that was stopped on request,
// or because nobody reads it.
var cancelled = &event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishCancelled}}

// tooLarge is the terminal event of a response whose log is beyond max_size.
var tooLarge = &event.Event{Kind: event.Failed, Err: &event.Error{
	Code: event.CodeResponseTooLarge, Status: http.StatusBadGateway,
	Message: "the response is larger than what is kept of one",
}}

// refusedTerminal is the terminal event for a response of the upstream that is
// no stream and comes too late to be passed on.
func refusedTerminal(status int, body []byte) event.Event {
	e := &event.Error{
		Code: event.CodeInvalidUpstream, Status: http.StatusBadGateway,
		Message: "the upstream did not answer with a stream",
	}
	if status >= http.StatusBadRequest {
		e.Code, e.Status = event.CodeUpstreamError, status
		e.Message = fmt.Sprintf("the upstream answered with status %d", status)
		e.Upstream = errorObject(body)
	}
	return event.Event{Kind: event.Failed, Err: e}
}

// callFailed is the terminal event for an upstream call that has ended without
// a stream, after a heartbeat has committed one.
func callFailed(end outcome) *event.Event {
	if end.err == nil && !end.aborted {
		return noStream
	}
	e := &event.Error{Code: event.CodeUpstreamError, Status: http.StatusBadGateway, Message: "the upstream call failed"}
	if handlerErr, ok := errors.AsType[caddyhttp.HandlerError](end.err); ok && handlerErr.StatusCode >= http.StatusBadRequest {
		e.Status = handlerErr.StatusCode
		e.Message += ": " + http.StatusText(handlerErr.StatusCode)
	}
	return &event.Event{Kind: event.Failed, Err: e}
}

// discardedFor returns the terminal event for those who read a response that was
// passed on to the client who asked for it: with a status, or as an error of
// the next handlers.
func (p *producer) discardedFor(end outcome) *event.Event {
	if p.phase == passing && p.status >= http.StatusBadRequest {
		ev := refusedTerminal(p.status, nil)
		return &ev
	}
	return callFailed(end)
}

// notMade returns the terminal event for those who wait for a call that is not
// made.
func notMade(cause error) *event.Event {
	e := &event.Error{Code: event.CodeCancelled, Status: statusClientClosedRequest, Message: "the request was withdrawn"}
	if away, ok := errors.AsType[*turnedAwayError](cause); ok {
		e = away.answer
	}
	return &event.Event{Kind: event.Failed, Err: e}
}

// undecodable is the terminal event of a stream whose content coding is broken.
func undecodable(err error) event.Event {
	return event.Event{Kind: event.Failed, Err: &event.Error{
		Code: event.CodeInvalidUpstream, Status: http.StatusBadGateway,
		Message: "the upstream's content coding can not be decoded: " + err.Error(),
	}}
}

// errorObject returns the error in a body as a JSON object: its member error,
// or all of it, or its text as the message.
func errorObject(body []byte) []byte {
	if gjson.ValidBytes(body) {
		if e := gjson.GetBytes(body, "error"); e.IsObject() {
			return []byte(e.Get("@ugly").Raw)
		}
		if e := gjson.ParseBytes(body); e.IsObject() {
			return []byte(e.Get("@ugly").Raw)
		}
	}
	if len(body) == 0 {
		return nil
	}
	return append(json.Append([]byte(`{"message":"`), string(body)), `"}`...)
}

// noStream is the terminal event for who follows a response that turned out to
// be none.
var noStream = &event.Event{Kind: event.Failed, Err: &event.Error{
	Code: event.CodeInvalidUpstream, Status: http.StatusBadGateway,
	Message: "the upstream did not answer with a stream",
}}

// cancelError is the cause with which an upstream call is cancelled. For what makes
// the call it is a cancellation as when the client leaves: reverse_proxy neither
// tries again nor takes the upstream for down.
type cancelError struct{ error }

// Unwrap returns what errors.Is and errors.As find.
func (e cancelError) Unwrap() []error { return []error{e.error, context.Canceled} }

// withCancelCause is like context.WithCancelCause for an upstream call.
func withCancelCause(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, func(cause error) {
		if cause != nil {
			cause = cancelError{cause}
		}
		cancel(cause)
	}
}

// causeTerminal returns the terminal event that goes with the cause for which
// we have cancelled an upstream call; nil where we have not.
func causeTerminal(ctx context.Context) *event.Event {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, fanout.ErrCancelled), errors.Is(cause, fanout.ErrAbandoned):
		return cancelled
	case errors.Is(cause, fanout.ErrTooLarge):
		return tooLarge
	case errors.Is(cause, errDraining):
		return drained
	default:
		return timeoutTerminal(cause)
	}
}
