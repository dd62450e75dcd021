package fanout

import (
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Status is how far a response is.
type Status string

// The states of a response, as clients see them.
const (
	InProgress  Status = "in_progress"
	Completed   Status = "done"
	Cancelled   Status = "cancelled"
	Broken      Status = "failed"
	Interrupted Status = "interrupted"
)

// StatusOf returns the status that a terminal event stands for; nil stands for
// a response that is running.
func StatusOf(terminal *event.Event) Status {
	switch {
	case terminal == nil:
		return InProgress
	case terminal.Kind == event.Done && terminal.Result.Finish == event.FinishCancelled:
		return Cancelled
	case terminal.Kind == event.Done:
		return Completed
	case terminal.Err.Code == event.CodeInterrupted:
		return Interrupted
	default:
		return Broken
	}
}

// Access is who may find a response.
type Access struct {
	// Scope is the name space of ids, keys and channels.
	Scope string
	// Owner is whom a response belongs to; empty where knowing its id is
	// enough.
	Owner string
}

// admits reports whether what belongs to a may be found by somebody with the
// access of other.
func (a Access) admits(other Access) bool {
	return a.Scope == other.Scope && (a.Owner == "" || a.Owner == other.Owner)
}

// Call identifies a request that must be made once only.
type Call struct {
	// Key identifies the key together with who used it: scope, owner and
	// credentials.
	Key string
	// Request identifies, with Key, the request: method, path and query.
	Request string
	// Body identifies what was asked: the same call must have the same body.
	Body string
}

// Spec is what a Registry must know of a response to keep it.
type Spec struct {
	Access
	// Dialect is what the producing route emits.
	Dialect string
	// Call identifies the request, so that the same one is made once only: its
	// idempotency key with all that must agree. Zero where it has none.
	Call Call
	// Channel is where the response is announced; empty for nowhere.
	Channel string
	// Keep is how long the response can be read after its end.
	Keep time.Duration
	// Grace is how long it goes on after its last reader has left.
	Grace time.Duration
	// MaxSize bounds its log, in bytes; 0 is no bound.
	MaxSize int
	// Attachment is kept with the response for whoever began it; the Registry
	// does not look into it.
	Attachment any
	// Ending is called once, before any reader can see the terminal event,
	// without locks and by whatever ends the response; nil for nothing.
	Ending func(terminal *event.Event)
	// Cancel ends the upstream call. The Registry calls it at most once, from
	// any goroutine and without locks.
	Cancel func(cause error)
}
