package relay

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// Route is what one handler's configuration says, for all its requests.
type Route struct {
	Logger   *zap.Logger
	Metrics  *observe.Metrics
	Board    *observe.Board
	Registry *fanout.Registry
	Shared   *Shared // nil for a process on its own
	Memory   Memory
	Drain    Drain

	MaxEvent     int // longest single event of an upstream, in bytes
	Reasoning    bool
	ToolCalls    bool
	Limits       timeouts.Limits // of a response; Heartbeat is that of clients
	WriteTimeout time.Duration   // of one write without progress; 0 is none
	ReadTimeout  time.Duration   // of a request body, beside a second for each 16 KiB; 0 is none
	Pace         deliver.Pace

	// Status returns the HTTP status that an error of the next handlers stands
	// for, 0 where it stands for none.
	Status func(error) int
}

// Drain ends the clients of a route in good order.
type Drain interface {
	// Join adds a client, or a producer, that is drained; see drain.Group.
	Join(returning drain.Returning, end, cut func()) *drain.Member
	// Retry is after how long a client is to come back.
	Retry() time.Duration
	// Reason is why clients are sent away.
	Reason() drain.Reason
}

// Request is one request, with what only its server knows of it.
type Request struct {
	*http.Request
	W    http.ResponseWriter
	Next ingest.Handler
	// Path is the path as the client sent it. A backend's API is named by it
	// even where an outer handler has changed the rest.
	Path    string
	Dialect string
	Idle    deliver.Overrider // bounds writes to the client; nil where nothing does
	// Cut frees a goroutine that waits for the client.
	Cut func()
	// Admit takes a place for the generation, perhaps after waiting for it, and
	// returns what gives it back; nil where places are not limited. The error is
	// a *deliver.RefusalError, or ingest.ErrClientGone, or one for Caddy.
	Admit func(ctx context.Context) (leave func(), err error)
	// Detach returns the request as a call that outlives it is made: with the
	// context, the body, and answers to w. forget lets go of the body.
	Detach func(ctx context.Context, w http.ResponseWriter, body []byte) (up *http.Request, forget func())
	// Keep holds what a response needs that outlives the configuration, until the
	// function that it returns is called.
	Keep func() (release func())
	// Observed puts a response that the request began, or follows, into the
	// access log and the placeholders.
	Observed func(*observe.Record)
	Followed func(observe.Followed)

	body *body
}

// emits reports whether output of a kind goes into the log of a response in a
// dialect: what a dialect does not carry uses up no index.
func (rt *Route) emits(dialect string) func(event.Kind) bool {
	switch dialect {
	case emit.DialectText:
		return rt.emitsText
	case emit.DialectPlain:
		return func(kind event.Kind) bool { return kind == event.Text || kind == event.Refusal }
	default:
		return func(event.Kind) bool { return true }
	}
}

func (rt *Route) emitsText(kind event.Kind) bool {
	switch kind {
	case event.Reasoning:
		return rt.Reasoning
	case event.ToolCall:
		return rt.ToolCalls
	default:
		return true
	}
}

// identity is what frames tell of a response beside its output; empty and nil
// while it is not known.
type identity interface {
	Model() string
	Usage() *event.TokenUsage
}

// newConn returns the way to the client of a request, for a response. known
// returns its identity, nil while there is none; known is nil where no response
// is followed.
func (rt *Route) newConn(q *Request, id, dialect string, resumable bool, known func() identity) *deliver.Conn {
	c := deliver.Config{
		ResponseID: id, Dialect: dialect, Resumable: resumable,
		Metrics: rt.Metrics, WriteTimeout: rt.WriteTimeout, Idle: q.Idle, Retry: rt.Drain.Retry,
	}
	if q.body != nil {
		c.Upload = q.body
	}
	if known != nil {
		c.Model = func() string {
			if identity := known(); identity != nil {
				return identity.Model()
			}
			return ""
		}
		c.Usage = func() *event.TokenUsage {
			if identity := known(); identity != nil {
				return identity.Usage()
			}
			return nil
		}
	}
	return deliver.NewConn(q.W, q.Request, c)
}

// producerWatch returns the watch of a producer, which cancels the upstream
// call. It beats through beat; nil where the client has a watch of its own.
func (rt *Route) producerWatch(cancel context.CancelCauseFunc, beat func()) *timeouts.Watch {
	limits := rt.Limits
	if beat == nil {
		limits.Heartbeat = 0
	}
	return timeouts.New(limits, func(e *timeouts.TimeoutError) { cancel(e) }, beat)
}

// clientWatch gives a client a watch that beats, which its owner must stop. It
// beats from EnableHeartbeat on: when the request asks for a stream, or when the
// response is known to be one.
func (rt *Route) clientWatch(c *deliver.Conn) *timeouts.Watch {
	limits := timeouts.Limits{Heartbeat: rt.Limits.Heartbeat}
	if c.Dialect == emit.DialectPlain {
		limits.Heartbeat = 0
	}
	watch := timeouts.New(limits, nil, c.Beat)
	c.Beats(watch)
	return watch
}

// Refuse answers with an error of ours, and leaves every other to Caddy.
func (rt *Route) Refuse(w http.ResponseWriter, r *http.Request, dialect string, err error) error {
	refusal, ours := errors.AsType[*deliver.RefusalError](err)
	switch {
	case ours && refusal.RetryAfter > 0:
		rt.Metrics.Rejected(refusal.Answer.Code)
		refusal.Write(w, r, dialect, "")
	case ours:
		refusal.Write(w, r, dialect, "")
	case errors.Is(err, ingest.ErrClientGone):
		w.WriteHeader(event.StatusClientClosedRequest)
	default:
		return err
	}
	return nil
}

// RefusalOf returns the answer to a request for a response that cannot be had.
func RefusalOf(err error) *deliver.RefusalError {
	switch {
	case errors.Is(err, fanout.ErrFull):
		return errFull
	case errors.Is(err, errInterrupted):
		return &deliver.RefusalError{Answer: event.TerminalInterrupted.Err}
	case errors.Is(err, errStoreAway):
		return errStoreAwayAnswer
	}
	e := &event.Error{Code: event.CodeUnknownResponse, Status: http.StatusNotFound, Message: "there is no such response"}
	switch {
	case errors.Is(err, fanout.ErrExpired), errors.Is(err, fanout.ErrForgotten):
		e = &event.Error{
			Code: event.CodeExpiredResponse, Status: http.StatusGone,
			Message: "the response, or the part of it that is asked for, is no longer kept",
		}
	case errors.Is(err, fanout.ErrBadCursor):
		e = &event.Error{
			Code: event.CodeBadCursor, Status: http.StatusBadRequest,
			Message: "the event id is not one that was sent",
		}
	case errors.Is(err, fanout.ErrMismatch):
		e = &event.Error{
			Code: event.CodeIdempotencyMismatch, Status: http.StatusUnprocessableEntity,
			Message: "the idempotency key was used with another request body",
		}
	}
	return &deliver.RefusalError{Answer: e}
}

// errFull turns a request away because of max_memory.
var errFull = &deliver.RefusalError{
	Answer: &event.Error{
		Code: event.CodeTooManyClients, Status: http.StatusServiceUnavailable, Message: "too much is held at this moment",
	},
	RetryAfter: time.Second,
	Reason:     event.ReasonBusy,
}

// errStoreAwayAnswer turns a request away that is about a response of another
// replica.
var errStoreAwayAnswer = &deliver.RefusalError{
	Answer: &event.Error{
		Code: event.CodeStoreUnavailable, Status: http.StatusServiceUnavailable,
		Message: "the store of responses cannot be reached at this moment",
	},
	RetryAfter: time.Second,
	Reason:     event.ReasonBusy,
}

// resumeResult counts a request that resumes or follows, by what becomes of it.
func (rt *Route) resumeResult(err error) {
	switch {
	case err == nil:
		rt.Metrics.Resume(event.ResumeResumed)
	case errors.Is(err, errInterrupted):
		rt.Metrics.Resume(event.ResumeEnded)
	case errors.Is(err, fanout.ErrBadCursor):
		rt.Metrics.Resume(event.ResumeBadCursor)
	case errors.Is(err, fanout.ErrExpired), errors.Is(err, fanout.ErrForgotten):
		rt.Metrics.Resume(event.ResumeExpired)
	default:
		rt.Metrics.Resume(event.ResumeUnknown)
	}
}
