package event

import "net/http"

// The terminal events that are the same for every response. They are shared and
// must not be changed.
var (
	// TerminalCancelled ends a response that was stopped on request, or because
	// nobody reads it.
	TerminalCancelled = &Event{Kind: Done, Result: &Result{Finish: FinishCancelled}}
	// TerminalTooLarge ends a response whose log is beyond max_size.
	TerminalTooLarge = failed(CodeResponseTooLarge, http.StatusBadGateway, "the response is larger than what is kept of one")
	// TerminalDraining ends a response at the drain deadline.
	TerminalDraining = failed(CodeDraining, http.StatusServiceUnavailable, "the server is shutting down")
	// TerminalInterrupted ends a response whose producer is gone, where others
	// may read it that were not produced with it.
	TerminalInterrupted = failed(CodeInterrupted, http.StatusBadGateway, "the server that produced the response is gone")
	// TerminalRequestTimeout ends a response whose request body did not come in
	// time.
	TerminalRequestTimeout = failed(CodeRequestTimeout, http.StatusRequestTimeout, "the request body did not come in time")
	// TerminalNoStream ends a response that turned out to be no stream, for
	// clients that were promised one.
	TerminalNoStream = failed(CodeInvalidUpstream, http.StatusBadGateway, "the upstream did not answer with a stream")
	// TerminalInternal ends a response whose producer has panicked.
	TerminalInternal = failed(CodeUpstreamError, http.StatusInternalServerError, "internal error")
)

func failed(code Code, status int, message string) *Event {
	return &Event{Kind: Failed, Err: &Error{Code: code, Status: status, Message: message}}
}

// StatusClientClosedRequest is the HTTP status of a request that was withdrawn.
// nginx gave it this meaning; Caddy uses it as well.
const StatusClientClosedRequest = 499
