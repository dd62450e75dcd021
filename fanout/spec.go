package fanout

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
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

// Access says which clients may find a response.
type Access struct {
	// Scope is the name space of ids, keys and channels. Two spellings of one
	// scope are two scopes: the caller brings a name into one form.
	Scope string
	// Owner is the client that a response belongs to; empty where knowing its
	// id is enough.
	Owner string
}

// admits reports whether what belongs to a may be found with the access other.
func (a Access) admits(other Access) bool {
	return a.Scope == other.Scope && (a.Owner == "" || a.Owner == other.Owner)
}

// bounded returns the access with its names as a Registry holds them.
func (a Access) bounded() Access {
	return Access{Scope: bounded(a.Scope), Owner: bounded(a.Owner)}
}

// Call identifies a request that must be made once only.
type Call struct {
	// Key identifies the idempotency key together with the client that used it:
	// scope, owner and credentials.
	Key string
	// Request identifies, with Key, the request: the route that serves it, and
	// method, path and query as the client sent them, before any rewrite. Two
	// routes may rewrite to the same path and call different backends.
	Request string
	// Body identifies what was asked: the same call must have the same body.
	Body string
}

// identity returns what two requests of the same call have in common.
func (c Call) identity() Call {
	c.Body = ""
	return c
}

// Spec is what a Registry must know of a response to keep it. Names in it that
// are longer than 256 bytes are held as a hash.
type Spec struct {
	Access
	// Dialect is what the producing route emits.
	Dialect string
	// Call identifies the request, so that the same one is made once only: its
	// idempotency key with all that must agree. Zero where it has none.
	Call Call
	// Channel is where the response is announced; empty for nowhere.
	Channel string
	// Started is when the response began; zero is now.
	Started time.Time
	// Keep is how long the response can be read after its end.
	Keep time.Duration
	// Grace is how long it goes on after its last reader has left.
	Grace time.Duration
	// MaxSize bounds its log, in bytes; 0 is no bound.
	MaxSize int
	// Attachment is kept with the response for whatever began it; the Registry
	// does not look into it. AttachmentSize is what it takes, in bytes.
	Attachment     any
	AttachmentSize int
	// Ending is called once, before any reader can see the terminal event, by
	// whatever ends the response. The lock of its log is held: it must not call
	// the response. nil is nothing.
	Ending func(terminal *event.Event)
	// Followed is asked when the response has had no readers for its grace time,
	// from a goroutine of its own and without locks: where it reports true, there
	// are readers that the Registry does not see, and another grace time begins.
	// nil is never.
	Followed func() bool
	// Cancel ends the upstream call. The Registry calls it at most once, from
	// any goroutine and without locks.
	Cancel func(cause error)
}

// bounded returns the spec with its names as a Registry holds them. They are
// copies, so that what they were cut from can go.
func (s Spec) bounded() Spec {
	for _, name := range []*string{&s.Scope, &s.Owner, &s.Channel, &s.Call.Key, &s.Call.Request, &s.Call.Body} {
		*name = strings.Clone(bounded(*name))
	}
	return s
}

// names is how many bytes the names of the spec have.
func (s *Spec) names() int {
	return len(s.Scope) + len(s.Owner) + len(s.Channel) + len(s.Call.Key) + len(s.Call.Request) + len(s.Call.Body)
}

const (
	// maxName is how long a name from outside may be to be held as it is, in
	// bytes.
	maxName = 256
	// hashPrefix is how a name begins that is the hash of another.
	hashPrefix = "sha256:"
)

// bounded returns a name as it is held and looked for: a hash where it is long.
// A name that looks like a hash is hashed as well, so that no two names are
// held as the same.
func bounded(name string) string {
	if len(name) <= maxName && !strings.HasPrefix(name, hashPrefix) {
		return name
	}
	hash := sha256.New()
	_, _ = io.WriteString(hash, name) // never fails (hash.Hash)
	return hashPrefix + hex.EncodeToString(hash.Sum(nil))
}
