package emit

import (
	"bufio"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// rfc3339Milli is RFC 3339 with milliseconds, the form of times in frames.
const rfc3339Milli = "2006-01-02T15:04:05.000Z07:00"

// Channel encodes what a client of a channel reads: the frames of many
// responses in the dialect of Text, between one another, each with the id of
// its response as the first member of its data.
//
// The ids of the frames come from the caller, since a place in a channel is
// one in each of its responses. They are written as they are and must not hold
// line breaks or NUL; a frame whose id is empty has no id line, and its client
// keeps the one it had. It has no state.
type Channel struct{}

// NewChannel returns an encoder for a client of a channel.
func NewChannel() *Channel { return &Channel{} }

// Header sets the header fields of the response to a client of a channel. It
// has no X-Response-Id, for it is of no one response.
func (c *Channel) Header(h http.Header) {
	setHeader(h, eventStream, "")
}

// Encode writes the frame of one event of a response, an output or the
// terminal one. w keeps the first error of a write.
func (c *Channel) Encode(w *bufio.Writer, id, responseID string, ev *event.Event) {
	name, ok := textEvent(ev.Kind)
	if !ok {
		return
	}
	b := appendChannelData(w, id, name, responseID)
	writeMembers(w, append(b, ','), ev, responseID)
}

// Started writes the frame that tells of a response that was admitted, and
// when, to the millisecond and in UTC.
func (c *Channel) Started(w *bufio.Writer, id, responseID string, startedAt time.Time) {
	b := appendChannelData(w, id, "started", responseID)
	b = append(b, `,"started_at":"`...)
	b = startedAt.UTC().AppendFormat(b, rfc3339Milli)
	_, _ = w.Write(append(b, "\"}\n\n"...))
}

// Ended writes the frame that tells of a response that has ended, with its
// final status and its model, which is left out where it is empty.
func (c *Channel) Ended(w *bufio.Writer, id, responseID, status, model string) {
	b := appendChannelData(w, id, "ended", responseID)
	b = append(b, `,"status":"`...)
	b = json.Append(b, status)
	if model != "" {
		b = append(b, `","model":"`...)
		b = json.Append(b, model)
	}
	_, _ = w.Write(append(b, "\"}\n\n"...))
}

// Reconnect writes the frame that sends the client away in good order: it is
// to come back after retry, rounded to milliseconds, with the id of the frame.
// It is of no one response and names none.
func (c *Channel) Reconnect(w *bufio.Writer, id string, retry time.Duration, reason string) {
	b := appendChannelHead(reserve(w, headRoom+len(id)), id, "reconnect")
	writeReconnect(w, b, retry, reason)
}

// appendChannelHead appends the lines of a frame before its data.
func appendChannelHead(b []byte, id, name string) []byte {
	if id != "" {
		b = append(b, "id: "...)
		b = append(b, id...)
		b = append(b, '\n')
	}
	return appendEventName(b, name)
}

// appendChannelData appends a frame up to and with the first member of its
// data to the free memory of w.
func appendChannelData(w *bufio.Writer, id, name, responseID string) []byte {
	b := appendChannelHead(reserve(w, headRoom+len(id)+len(responseID)), id, name)
	b = append(b, `data: {"response_id":"`...)
	return append(json.Append(b, responseID), '"')
}
