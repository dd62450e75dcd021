package limit

import (
	"errors"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// The reasons for which Acquire turns a request away. It returns them as they
// are; Code gives the name of each in the contract with clients.
var (
	// ErrTooMany says that every place is taken and that the limit has no
	// queue.
	ErrTooMany = errors.New("limit: too many streams")
	// ErrQueueFull says that every place is taken and that as many requests
	// as may wait are waiting.
	ErrQueueFull = errors.New("limit: the queue is full")
	// ErrQueueTimeout says that the request waited for as long as it may and
	// got no place.
	ErrQueueTimeout = errors.New("limit: no place became free in time")
	// ErrKeyLimit says that the requests of the same key that run or wait are
	// as many as one key may have.
	ErrKeyLimit = errors.New("limit: too many streams for this key")
	// ErrDraining says that Drain was called, before the request came or
	// while it waited.
	ErrDraining = errors.New("limit: draining")
)

// Code returns the code under which clients, logs and metrics know a reason. It
// looks through wrapping, and returns "" for any other error.
func Code(err error) event.Code {
	switch {
	case errors.Is(err, ErrTooMany):
		return event.CodeTooManyStreams
	case errors.Is(err, ErrQueueFull):
		return event.CodeQueueFull
	case errors.Is(err, ErrQueueTimeout):
		return event.CodeQueueTimeout
	case errors.Is(err, ErrKeyLimit):
		return event.CodeKeyLimit
	case errors.Is(err, ErrDraining):
		return event.CodeDraining
	default:
		return ""
	}
}
