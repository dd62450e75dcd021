package event

// Code names why a request was turned away or a response failed. The codes are
// part of the contract with clients: error bodies, error frames, logs and metric
// labels carry them, and this file has all of them.
type Code string

// The codes of a request that is turned away and may be tried again later: 429,
// and 503 for the last three.
const (
	CodeTooManyStreams Code = "too_many_streams" // max_streams has no queue
	CodeQueueFull      Code = "queue_full"       // as many requests wait as may
	CodeQueueTimeout   Code = "queue_timeout"    // no place became free in time
	CodeKeyLimit       Code = "key_limit"        // per: too many of one key
	CodeTooManyClients Code = "too_many_clients" // max_clients or max_memory
	CodeDraining       Code = "draining"         // the process goes down; in a frame: the drain deadline ended the response

	CodeStoreUnavailable Code = "store_unavailable" // the response is not here, and the shared store cannot be asked
)

// The codes of a request that cannot be served as it is.
const (
	CodeUnknownResponse     Code = "unknown_response"     // 404
	CodeExpiredResponse     Code = "expired_response"     // 410
	CodeBadCursor           Code = "bad_cursor"           // 400
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // 422
	CodeRequestTooLarge     Code = "request_too_large"    // 413
	CodeRequestTimeout      Code = "request_timeout"      // 408
	CodeUnknownDialect      Code = "unknown_dialect"      // 400
)

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
	CodeResponseTooLarge     Code = "response_too_large"     // a log beyond max_size, or what is held beyond max_memory
	CodeInterrupted          Code = "interrupted"            // the machine that produced the response died
)

// Outcome is how a response has ended, in logs and metrics: one of the values
// below, or the Code of the error that ended it.
type Outcome string

// The outcomes that are not codes of errors.
const (
	OutcomeDone       Outcome = "done"
	OutcomeCancelled  Outcome = "cancelled"
	OutcomeClientGone Outcome = "client_gone"
	OutcomeSlowClient Outcome = "slow_client"
	OutcomeDrained    Outcome = "drained"
)

// Reason is why a client is told to reconnect.
type Reason string

// The reasons of a reconnect frame.
const (
	ReasonReload     Reason = "reload"      // another configuration has taken over
	ReasonExit       Reason = "exit"        // the process ends
	ReasonSlowClient Reason = "slow_client" // the client takes too little
	ReasonBusy       Reason = "busy"        // too many clients
)

// SlowAction is what was done about a slow client.
type SlowAction string

// The actions.
const (
	SlowCoalesced    SlowAction = "coalesced"
	SlowDropped      SlowAction = "dropped"
	SlowDisconnected SlowAction = "disconnected"
	SlowWriteTimeout SlowAction = "write_timeout"
)

// ResumeResult is what became of a request that resumes or follows a response.
type ResumeResult string

// The results.
const (
	ResumeResumed   ResumeResult = "resumed"
	ResumeEnded     ResumeResult = "ended" // the client has had everything: 204
	ResumeUnknown   ResumeResult = "unknown"
	ResumeExpired   ResumeResult = "expired"
	ResumeBadCursor ResumeResult = "bad_cursor"
)
