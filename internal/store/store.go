package store

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Errors of a Store. Any other error means that the store could not be asked or
// could not do it; whether a write has happened is then unknown, and it may be
// made again.
var (
	// ErrUnknown is for a response that does not exist, or not for the one
	// who asks. It is fanout's, as are the next two, so that callers map them
	// once.
	ErrUnknown = fanout.ErrUnknown
	// ErrExpired is for a response, or a place in a channel, that is no longer
	// kept.
	ErrExpired = fanout.ErrExpired
	// ErrMismatch is for an idempotency key that was used with another body.
	ErrMismatch = fanout.ErrMismatch

	// ErrFenced refuses a write to a response that has ended, by whomever:
	// where the writer did not end it itself, another replica has.
	ErrFenced = errors.New("store: response was ended by another replica")
	// ErrGap refuses a batch that does not begin where the log in the store
	// ends; Ack.Last tells where that is.
	ErrGap = errors.New("store: batch does not continue the log")
	// ErrCorrupt is for data that no Store has written.
	ErrCorrupt = errors.New("store: corrupt data")
	// ErrClosed is for every call after Close.
	ErrClosed = errors.New("store: closed")
)

// Store keeps responses for several replicas. It is safe for concurrent use. A
// call returns at the latest when its context ends.
//
// After Close every method returns ErrClosed (Close itself nil), no function that
// was passed to Subscribe is running or called again, and what is stored stays.
type Store interface {
	// Begin makes a response known. Where a response of the same call is
	// running or kept, Begin returns that one in Found and makes none; of two
	// replicas that begin the same call at once, one gets the other's. To
	// begin the same id again from the same replica changes nothing and
	// returns what there is. The error may be ErrMismatch.
	Begin(ctx context.Context, spec *Spec) (Begun, error)

	// Announce tells the channel of a response that it has started. Without a
	// channel, or for the second time, it does nothing.
	Announce(ctx context.Context, ref Ref) error

	// Append adds a batch to a running response. A batch that the log has
	// already changes nothing and is no error. Errors: ErrUnknown, ErrFenced
	// and ErrGap; the last one comes with Ack.Last.
	Append(ctx context.Context, ref Ref, b Batch) (Ack, error)

	// Finish adds the last batch and ends the response, on its channel too.
	// Whoever knows the fence may do it, and every other write with that
	// fence is refused from then on. To finish twice from the same replica
	// is no error. Errors as for Append.
	Finish(ctx context.Context, ref Ref, f Final) (Ack, error)

	// Discard removes a response, whoever follows it sees Gone, and its call
	// may be made again. An unknown one is no error.
	Discard(ctx context.Context, ref Ref) error

	// Find returns what is known of a response. Errors: ErrUnknown, ErrExpired.
	Find(ctx context.Context, id string, as fanout.Access) (Meta, error)

	// FindKey returns the ids of the responses of an idempotency key
	// (fanout.Call.Key), running and kept.
	FindKey(ctx context.Context, key string) ([]string, error)

	// Read returns the part of a log that begins after an index, or with the
	// batch that contains it; not necessarily all. Errors: ErrUnknown,
	// ErrExpired.
	Read(ctx context.Context, id string, after int) (Page, error)

	// Followed reports whether anybody is subscribed to a response, as far as
	// the Store knows.
	Followed(ctx context.Context, id string) (bool, error)

	// Cancel leaves the wish that a response be cancelled, where its replica
	// finds it with the next Append, and sends a message to that replica's
	// topic. A response that has ended is left as it is. Meta is as of then.
	// Errors as for Find.
	Cancel(ctx context.Context, id string, as fanout.Access) (Meta, error)

	// Channel returns the notices of a channel after a position, at most
	// about limit. The empty position is the beginning of what is kept; one
	// whose next notice is no longer kept is ErrExpired, one that was never
	// given out ErrUnknown. An unknown channel is an empty one.
	Channel(ctx context.Context, ch Channel, after Position, limit int) (ChannelPage, error)

	// Subscribe calls deliver for every message of a topic that is sent after
	// Subscribe has returned, in order, from one goroutine at a time. What was
	// sent before may come as well. deliver
	// must not block and must not call the Store. Where messages may have been
	// lost, it gets one with Reset, after which none is lost again.
	Subscribe(ctx context.Context, t Topic, deliver func(Message)) (Subscription, error)

	// Beat renews the lease of a replica, and reports which of the others
	// have none.
	Beat(ctx context.Context, replica string, others []string) (Beat, error)

	// Lease is how long the lease of a replica lasts after a Beat.
	Lease() time.Duration

	// Leave gives up the lease of a replica.
	Leave(ctx context.Context, replica string) error

	// Close releases what the Store holds.
	Close() error
}

// Spec describes a response that begins.
type Spec struct {
	ID string
	fanout.Access
	Call    fanout.Call // zero where the request has no idempotency key
	Channel string      // empty for none
	Dialect string
	Replica string // that produces it
	Started time.Time
	Keep    time.Duration // how long it can be read after its end
}

// Begun is what came of Begin.
type Begun struct {
	Ref  Ref
	Last int // of what the store has already, after a Begin that was repeated
	// Found is the response of the same call, nil where there was none. Then
	// Ref is zero.
	Found *Meta
}

// Ref names a response for writing.
type Ref struct {
	ID      string
	Fence   int64
	Replica string // that writes
	Channel Channel
	Keep    time.Duration
	Access  fanout.Access
	// Claim is the store's own word for the call of the response.
	Claim string
}

// About is what becomes known of a response with its first output.
type About struct {
	Format string              `json:"f,omitempty"`
	Model  string              `json:"m,omitempty"`
	Header map[string][]string `json:"h,omitempty"` // of the upstream's response
	Usage  *event.TokenUsage   `json:"u,omitempty"` // by then
}

// Batch is a part of a log, as Encode makes it.
type Batch struct {
	First, Last int
	Data        []byte
	About       *About // nil where it has not changed
}

// Final is the end of a response.
type Final struct {
	Batch
	Status fanout.Status
	Model  string // empty where it is not known
	// Compact is the whole log as one batch, which replaces the batches; nil
	// leaves them.
	Compact []byte
	// Free lets the call of the response be made again.
	Free bool
}

// Ack answers a write.
type Ack struct {
	Last     int  // index of the last event that the store has
	Cancel   bool // somebody wants the response to be cancelled
	Followed bool // another replica listens, or has listened
}

// Meta is what a Store knows of a response.
type Meta struct {
	Ref     // of its replica: whoever wants to finish it for that one replaces Replica
	About   About
	Dialect string
	Started time.Time
	Last    int
	Status  fanout.Status
	Body    string // of the call
}

// Page is a part of a log.
type Page struct {
	Batches [][]byte
	Last    int // of the log, not of the page
	Status  fanout.Status
}

// Channel names a channel: what belongs to one owner in one scope.
type Channel struct {
	fanout.Access
	Name string
}

// Position is a place in a channel, as NewPosition makes it.
type Position string

// ChannelPage is a part of a channel.
type ChannelPage struct {
	Notices []Notice
	Head    Position // of the channel, not of the page; empty for an unknown one
	Running []string // ids of what was running at Head, the oldest start first
}

// Beat is what a replica learns when it renews its lease.
type Beat struct {
	Lapsed  bool     // it had none, and the others may have taken it for dead
	Missing []string // those of the others that have none
}

// Topic names what can be subscribed to.
type Topic struct {
	Kind TopicKind
	Name string // a response id or a replica
	Channel
}

// TopicKind is the kind of a Topic.
type TopicKind uint8

// The kinds.
const (
	ResponseTopic TopicKind = iota // the batches of a response
	ChannelTopic                   // the notices of a channel, as ParseMessage reads them
	ReplicaTopic                   // the ids of responses of a replica that are to be cancelled
)

// Message is what a subscriber gets.
type Message struct {
	Data  []byte    // valid during the call
	At    time.Time // when it was sent, by the sender's clock; zero where that is not known
	Reset bool      // messages before this may have been lost; there is no Data
	Gone  bool      // the response was discarded; there is no Data
}

// Subscription is a Subscribe that runs.
type Subscription interface {
	// Close ends it. deliver may be running, but is not called again.
	Close()
}
