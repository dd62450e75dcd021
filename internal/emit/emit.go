// Package emit turns canonical events into what clients read: one Encoder for
// each dialect, and a Channel where one client follows many responses.
//
// The invariant: whatever the events hold, every frame is whole and has data,
// a heartbeat aside; an encoder never parses text, which is put between quotes
// as it is, and allocates nothing for a delta.
package emit

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// The dialects. Passthrough is the one that has no Encoder: its bytes are the
// upstream's own.
const (
	DialectText        = "text"
	DialectPlain       = "plain"
	DialectOpenAI      = "openai"
	DialectAnthropic   = "anthropic"
	DialectAISDK       = "ai-sdk"
	DialectPassthrough = "passthrough"
)

// ErrUnknownDialect is the error of New for a name that is none of the
// dialects that have an Encoder.
var ErrUnknownDialect = errors.New("emit: unknown dialect")

// Encoder turns the events of one response's log into the frames of one
// dialect, for one client. The first event that it is given may be any of the
// log. It is not safe for concurrent use.
type Encoder interface {
	// Header sets the header fields of a response in the dialect.
	Header(h http.Header)
	// Encode writes the frames of one event, an output or the terminal one,
	// with its index in the log; for an event that was merged from several,
	// the index of the last. w keeps the first error of a write.
	Encode(w *bufio.Writer, index int, ev *event.Event)
}

// ModelSetter is implemented by the encoders whose frames name the model. It
// counts for the frames written after it, the first of which is that of the
// first event.
type ModelSetter interface {
	SetModel(model string)
}

// UsageSetter is implemented by the encoders whose first frame has token counts.
// It counts for the frames written after it, as with ModelSetter.
type UsageSetter interface {
	SetUsage(usage *event.TokenUsage)
}

// maxHeld is what an encoder holds at most for its client, in bytes: blocks
// that must wait for another to end, input that must be told whole.
const maxHeld = 4 << 20

// failer is implemented by the encoders that hold something.
type failer interface {
	failure() *event.Error
}

// Failure returns the error with which an encoder has given its client up,
// because it would have had to hold too much; nil as long as it has not. The
// client has had the error, nothing more is written, and its connection is to
// be ended as after a Failed with this error; see Aborts.
func Failure(enc Encoder) *event.Error {
	if f, ok := enc.(failer); ok {
		return f.failure()
	}
	return nil
}

// errHeldTooMuch is the error of an encoder that would have to hold too much.
var errHeldTooMuch = &event.Error{
	Code: event.CodeResponseTooLarge, Status: http.StatusBadGateway,
	Message: "the response has more unfinished parts than are held for one client",
}

// Options say what an Encoder must know of a response.
type Options struct {
	// ResponseID is the id of the response, as fanout.NewID makes them. Where
	// it is empty, the client is told none.
	ResponseID string
	// Model is the name of the model, where it is known already; else see
	// ModelSetter.
	Model string
	// Created is when the response began; zero is now.
	Created time.Time
	// BareIDs says that an id of the dialect text is the index alone: nobody can
	// come back with it.
	BareIDs bool
	// IncludeUsage is whether the client asked for the token counts, in
	// dialects where it has to.
	IncludeUsage bool
}

// New returns an Encoder of the dialect. The error is ErrUnknownDialect. A new
// dialect is known here and to Dialects, and where it needs to be to Aborts and
// AppendErrorBody; what kinds of output it gets is the business of package relay.
func New(dialect string, o Options) (Encoder, error) {
	switch dialect {
	case DialectText:
		return NewText(o), nil
	case DialectPlain:
		return NewPlain(o.ResponseID), nil
	case DialectOpenAI:
		return NewOpenAI(OpenAIOptions{ResponseID: o.ResponseID, Model: o.Model, Created: o.Created, IncludeUsage: o.IncludeUsage}), nil
	case DialectAnthropic:
		return NewAnthropic(o.ResponseID, o.Model), nil
	case DialectAISDK:
		return NewAISDK(o.ResponseID), nil
	default:
		return nil, fmt.Errorf("%w %q", ErrUnknownDialect, dialect)
	}
}

// Dialects returns the names that New knows.
func Dialects() []string {
	return []string{DialectText, DialectPlain, DialectOpenAI, DialectAnthropic, DialectAISDK}
}

// Aborts reports whether the connection must be aborted once the frames of ev
// are written, because a client of the dialect could take a clean end for that
// of a whole response.
func Aborts(enc Encoder, ev *event.Event) bool {
	switch enc.(type) {
	case *Plain, *OpenAI, *Anthropic:
		return ev.Kind == event.Failed
	default:
		return false
	}
}

// AppendErrorBody appends the JSON body of an HTTP error in the shape that
// clients of a dialect read.
func AppendErrorBody(dst []byte, dialect string, e *event.Error, responseID string) []byte {
	switch dialect {
	case DialectAnthropic:
		return AppendAnthropicError(dst, e, responseID)
	case DialectOpenAI:
		return AppendOpenAIError(dst, e, responseID)
	}
	return AppendError(dst, e, responseID)
}

// Heartbeat writes the comment that tells a client of server-sent events, and
// whatever is between, that the connection is alive. It may stand between two
// frames only. One newline ends it: with two it would be an event without
// data, on which some clients fail.
func Heartbeat(w *bufio.Writer) {
	_, _ = w.WriteString(": ping\n")
}

// setHeader sets the header fields that all dialects have in common. Each
// keeps something on the way from holding back or changing the stream.
func setHeader(h http.Header, contentType, responseID string) {
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx and what learned from it
	h.Set("Incremental", "?1")       // RFC 10036
	if responseID != "" {
		h.Set("X-Response-Id", responseID)
	}
}

const eventStream = "text/event-stream; charset=utf-8"

// reserve returns an empty slice of w's free memory, of capacity n at least
// where all of w has that: what is appended to it and then written is neither
// allocated nor copied.
func reserve(w *bufio.Writer, n int) []byte {
	if w.Available() < n {
		_ = w.Flush() // w keeps the error
	}
	return w.AvailableBuffer()
}

// writeText writes head, an escaped text of any length, and tail.
func writeText(w *bufio.Writer, head, text []byte, tail string) {
	_, _ = w.Write(head)
	_, _ = w.Write(text)
	_, _ = w.WriteString(tail)
}
