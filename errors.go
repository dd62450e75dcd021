package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"bufio"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// The codes of requests that are answered without a generation. With those of
// package provider they are what clients see in error bodies.
const (
	codeExpiredResponse     event.Code = "expired_response"
	codeUnknownResponse     event.Code = "unknown_response"
	codeBadCursor           event.Code = "bad_cursor"
	codeIdempotencyMismatch event.Code = "idempotency_mismatch"
	codeRequestTooLarge     event.Code = "request_too_large"
	codeUnknownDialect      event.Code = "unknown_dialect"
	codeTooManyClients      event.Code = "too_many_clients"
)

// refusal returns the answer to a request for a response that can not be had.
func refusal(err error) *event.Error {
	switch {
	case errors.Is(err, fanout.ErrExpired), errors.Is(err, fanout.ErrForgotten):
		return &event.Error{
			Code: codeExpiredResponse, Status: http.StatusGone,
			Message: "the response, or the part of it that is asked for, is no longer kept",
		}
	case errors.Is(err, fanout.ErrBadCursor):
		return &event.Error{
			Code: codeBadCursor, Status: http.StatusBadRequest,
			Message: "the event id is not one that was sent",
		}
	case errors.Is(err, fanout.ErrFull):
		return &event.Error{
			Code: codeTooManyClients, Status: http.StatusServiceUnavailable,
			Message: "too much is held at this moment",
		}
	case errors.Is(err, fanout.ErrMismatch):
		return &event.Error{
			Code: codeIdempotencyMismatch, Status: http.StatusUnprocessableEntity,
			Message: "the idempotency key was used with another request body",
		}
	default:
		return &event.Error{
			Code: codeUnknownResponse, Status: http.StatusNotFound,
			Message: "there is no such response",
		}
	}
}

// turnedAwayError is the error of a request that may come again later.
type turnedAwayError struct {
	answer     *event.Error
	retryAfter time.Duration
	reason     string // of a reconnect frame
}

// Error implements the error interface.
func (t *turnedAwayError) Error() string { return t.answer.Error() }

// errTooManyClients turns a request away because of max_clients.
var errTooManyClients = &turnedAwayError{
	answer: &event.Error{
		Code: codeTooManyClients, Status: http.StatusServiceUnavailable, Message: "too many clients",
	},
	retryAfter: time.Second,
	reason:     "busy",
}

// refuseWith answers with an error of ours, and leaves every other to Caddy.
func refuseWith(w http.ResponseWriter, r *http.Request, dialect string, err error) error {
	var own *event.Error
	var away *turnedAwayError
	switch {
	case errors.As(err, &away):
		clientsMetrics().rejected.WithLabelValues(string(away.answer.Code)).Inc()
		away.write(w, r, dialect)
	case errors.As(err, &own):
		refuse(w, dialect, own, "")
	case errors.Is(err, errClientGone):
		w.WriteHeader(statusClientClosedRequest)
	default:
		return err
	}
	return nil
}

// write answers the request. An EventSource takes every status but 200 for
// final, so it is told to reconnect where the server is to blame.
func (t *turnedAwayError) write(w http.ResponseWriter, r *http.Request, dialect string) {
	if t.answer.Status == http.StatusServiceUnavailable && r.Method == http.MethodGet && acceptsEventStream(r) {
		channel := emit.NewChannel()
		channel.Header(w.Header())
		w.WriteHeader(http.StatusOK)
		bw := bufio.NewWriter(w)
		channel.Reconnect(bw, r.Header.Get("Last-Event-ID"), t.retryAfter, t.reason)
		_ = bw.Flush()
		return
	}
	setRetryAfter(w.Header(), t.retryAfter)
	refuse(w, dialect, t.answer, "")
}

// setRetryAfter sets the header field, in whole seconds.
func setRetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

// refuse answers a request with an error of ours: a status and a JSON body in
// the shape of the dialect. Nothing of the response must have been written.
func refuse(w http.ResponseWriter, dialect string, e *event.Error, responseID string) {
	h := w.Header()
	for _, field := range bodyHeaders {
		h.Del(field)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(appendError(nil, dialect, e, responseID), '\n'))
}

// appendError appends the JSON body of an error in the shape that clients of
// the dialect read.
func appendError(dst []byte, dialect string, e *event.Error, responseID string) []byte {
	if dialect == emit.DialectAnthropic {
		return emit.AppendAnthropicError(dst, e, responseID)
	}
	return emit.AppendError(dst, e, responseID)
}

// bodyHeaders are the header fields that speak of a body which is not sent as
// it came.
var bodyHeaders = []string{
	"Content-Length", "Content-Encoding", "Content-Range", "Accept-Ranges",
	"Content-Md5", "Content-Digest", "Repr-Digest", "Digest", "Etag", "Last-Modified", "Trailer",
}
