package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// This file has the way of a response to its end, after the next handler has
// returned.

// finish brings the response to its end: a stream that has no terminal event yet
// gets one. What it returns is how the response ends where it is no stream.
func (p *Producer) finish(call Call) Call {
	cause := p.cause()
	if cause == nil {
		cause = timeoutTerminal(call.Err) // that of the transport
	}
	if p.decompressor != nil && p.decompressor.Close() != nil {
		p.broken = true // where it is decoded, it has no terminal event either
	}
	switch p.phase {
	case waiting, withdrawn:
		if cause == nil && !p.Out.Seal() {
			call.Header = p.header
			return call
		}
		p.conclude(cause, call)
	case decoding:
		return p.finishStream(cause, call)
	case mirroring, passing:
		return p.finishPassing(cause, call)
	case refused:
		p.endRefused()
	case finished:
	}
	return Call{}
}

// cause returns the terminal event for what has ended the call; nil where nothing
// of ours has.
func (p *Producer) cause() *event.Event {
	cause := terminalOf(p.Ctx)
	if cause == nil && p.Ctx.Err() != nil && p.Late != nil && p.Late() {
		return event.TerminalRequestTimeout // the server takes that for the client's leaving
	}
	return cause
}

// conclude ends a response with the event that goes with the cause of its end,
// or else with the failure of the call.
func (p *Producer) conclude(cause *event.Event, call Call) {
	if cause == nil {
		cause = p.failed(call)
	}
	p.append([]event.Event{*cause}, 0)
}

// finishStream ends a token stream whose body has ended, or whose call was
// cancelled, before its terminal event.
func (p *Producer) finishStream(cause *event.Event, call Call) Call {
	switch {
	case cause == nil && p.Ctx.Err() != nil:
		p.err = ErrClientGone // no client is there to be told of an end
		return call
	case cause == nil && call.Err != nil && !p.emitted && !p.Out.Seal():
		call.Header = p.upstream
		return call
	case cause == nil && call.Err != nil:
		p.conclude(nil, call)
		return Call{}
	case cause != nil && p.lacksOnlyEnd(cause):
		p.append(p.reader.Finish(), 0)
		return Call{}
	case cause != nil:
		p.conclude(cause, call)
		return Call{}
	}
	events := p.reader.Close(call.clean())
	if !p.opaque() {
		p.append(events, 0)
		return Call{}
	}
	if p.err = p.passHeld(); p.phase == passing {
		return p.finishPassing(nil, call)
	}
	p.endRefused()
	return Call{}
}

// lacksOnlyEnd reports whether every choice of the response has finished, and
// the limit between two tokens has passed while the provider's own end was
// awaited.
func (p *Producer) lacksOnlyEnd(cause *event.Event) bool {
	return cause.Kind == event.Failed && cause.Err.Code == event.CodeBetweenTokensTimeout && p.reader.Finished()
}

// finishPassing ends a response that passes as it is. Like reverse_proxy, it
// aborts one whose end the client must not take for a good one.
func (p *Producer) finishPassing(cause *event.Event, call Call) Call {
	if p.phase == mirroring && p.terminal == nil && p.err == nil {
		p.terminal = cause
		if clientLeft := call.Aborted && p.Ctx.Err() != nil; cause == nil && !clientLeft {
			p.look(p.reader.Close(call.clean()))
		}
	}
	if errors.Is(context.Cause(p.Ctx), errLingered) {
		call = Call{} // the client has had all of it
	}
	call.Aborted = call.Aborted || p.broken || cause != nil || p.isTruncated(call)
	if finisher, ok := p.body.(interface{ Finish() }); ok {
		finisher.Finish()
	}
	return call
}

// isTruncated reports whether a mirrored stream is one that we know and has
// ended without a terminal event. One of Gemini's that ends cleanly passes as it
// ended: Google's clients try again at that, and not at a broken connection.
func (p *Producer) isTruncated(call Call) bool {
	if call.clean() && provider.TakesNoComments(p.Path) {
		return false
	}
	return p.phase == mirroring && p.terminal != nil && p.terminal.Kind == event.Failed &&
		p.terminal.Err.Code == event.CodeUpstreamTruncated
}

// Fail ends a response whose producer has panicked.
func (p *Producer) Fail() {
	if p.phase == decoding {
		p.end(event.TerminalInternal)
	}
}

// Terminal returns the event that the response has ended with, nil where it has
// none.
func (p *Producer) Terminal() *event.Event { return p.terminal }

// HasEnded reports whether the terminal event is in the log.
func (p *Producer) HasEnded() bool { return p.phase == finished }

// Passed reports whether the response has passed as it is, and nothing is known
// of it. What reverse_proxy writes for a client that has left is no response.
func (p *Producer) Passed() bool { return p.phase == passing && !p.late }

// PassedWhole reports whether a stream that we know has passed as it is, to its
// end.
func (p *Producer) PassedWhole() bool {
	return p.phase == mirroring && p.terminal != nil && p.err == nil
}

// Err returns the error of the client's connection.
func (p *Producer) Err() error { return p.err }

// Usage returns the token counts that the provider has sent, nil where there are
// none; also of a response that has not come to its end.
func (p *Producer) Usage() *event.TokenUsage {
	switch {
	case p.terminal != nil && p.terminal.Kind == event.Done:
		return p.terminal.Result.Usage
	case p.reader != nil:
		return p.reader.Usage()
	}
	return nil
}

// failed returns the terminal event for an upstream call that has failed, and
// logs why: the client is told no more than the status.
func (p *Producer) failed(call Call) *event.Event {
	if call.Err != nil {
		p.Logger.Warn("upstream call failed after the response had begun",
			zap.String("response_id", p.Log.ID()), zap.Error(call.Err))
	}
	return p.callFailed(call)
}

// callFailed is the terminal event for an upstream call that has ended without a
// stream, after a heartbeat has committed one.
func (p *Producer) callFailed(call Call) *event.Event {
	if call.Err == nil && !call.Aborted {
		return event.TerminalNoStream
	}
	e := &event.Error{Code: event.CodeUpstreamError, Status: http.StatusBadGateway, Message: "the upstream call failed"}
	if status := p.Status(call.Err); status >= http.StatusBadRequest {
		e.Status = status
		e.Message += ": " + http.StatusText(status)
	}
	return &event.Event{Kind: event.Failed, Err: e}
}

// Discarded returns the terminal event for clients that read a response which
// was passed on to the client that asked for it: with a status, or as an error
// of the next handlers.
func (p *Producer) Discarded(call Call) *event.Event {
	if p.phase == passing && p.status >= http.StatusBadRequest {
		return refusedTerminal(p.status, nil)
	}
	return p.callFailed(call)
}

// refusedTerminal is the terminal event for a response of the upstream that is
// no stream and comes too late to be passed on.
func refusedTerminal(status int, body []byte) *event.Event {
	if status < http.StatusBadRequest {
		return event.TerminalNoStream
	}
	return &event.Event{Kind: event.Failed, Err: &event.Error{
		Code: event.CodeUpstreamError, Status: status,
		Message:  fmt.Sprintf("the upstream answered with status %d", status),
		Upstream: errorObject(body),
	}}
}

// undecodable is the terminal event of a stream whose content coding is broken.
func undecodable(err error) event.Event {
	return event.Event{Kind: event.Failed, Err: &event.Error{
		Code: event.CodeInvalidUpstream, Status: http.StatusBadGateway,
		Message: "the upstream's content coding cannot be decoded: " + err.Error(),
	}}
}

// errorObject returns the error in a body as a JSON object: its member error, or
// all of it, or its text as the message.
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
