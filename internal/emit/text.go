package emit

import (
	"bufio"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// headRoom is more than the bytes of a frame before its text, the response id
// aside.
const headRoom = 128

// Text encodes the default dialect: server-sent events with the text alone,
// each with an id that a client can come back with.
type Text struct {
	responseID string
	bare       bool // an id is the index alone
}

// NewText returns an encoder for one client of a response. Where the response id
// is empty and ids are not bare, frames have no id.
func NewText(o Options) *Text {
	return &Text{responseID: o.ResponseID, bare: o.BareIDs}
}

// Header implements Encoder.
func (t *Text) Header(h http.Header) {
	setHeader(h, eventStream, t.responseID)
}

// Encode implements Encoder.
func (t *Text) Encode(w *bufio.Writer, index int, ev *event.Event) {
	name, ok := textEvent(ev.Kind)
	if !ok {
		return
	}
	b := t.appendHead(w, index, name)
	writeMembers(w, append(b, "data: {"...), ev, t.responseID)
}

// Reconnect writes the frame that sends the client away in good order: it is
// to come back after retry, rounded to milliseconds, with the index of the
// last event it had, 0 where there was none.
func (t *Text) Reconnect(w *bufio.Writer, index int, retry time.Duration, reason string) {
	writeReconnect(w, t.appendHead(w, index, "reconnect"), retry, reason)
}

// Gap writes the frame that tells a slow client how many events were dropped,
// with the index of the last of them.
func (t *Text) Gap(w *bufio.Writer, index, dropped int) {
	b := t.appendHead(w, index, "gap")
	b = append(b, `data: {"dropped":`...)
	b = strconv.AppendInt(b, int64(dropped), 10)
	_, _ = w.Write(append(b, "}\n\n"...))
}

// appendHead appends the lines of a frame before its data to the free memory
// of w.
func (t *Text) appendHead(w *bufio.Writer, index int, name string) []byte {
	b := reserve(w, headRoom+len(t.responseID))
	if t.bare || t.responseID != "" {
		b = append(b, "id: "...)
		if !t.bare {
			b = append(append(b, t.responseID...), ':')
		}
		b = strconv.AppendInt(b, int64(index), 10)
		b = append(b, '\n')
	}
	return appendEventName(b, name)
}

// textEvent returns the name of the frames that carry events of a kind, empty
// for the text itself. ok is false for facts for a Reader, which no log holds.
func textEvent(kind event.Kind) (name string, ok bool) {
	switch kind {
	case event.Text:
		return "", true
	case event.Reasoning:
		return "reasoning", true
	case event.Refusal:
		return "refusal", true
	case event.ToolCall:
		return "tool_call", true
	case event.Done:
		return "done", true
	case event.Failed:
		return "error", true
	default:
		return "", false
	}
}

// writeMembers writes a frame of an event that textEvent knows: head, which
// ends where the members of the data begin, those members and the rest.
func writeMembers(w *bufio.Writer, head []byte, ev *event.Event, responseID string) {
	switch ev.Kind {
	case event.Done:
		head = appendResult(head, ev.Result)
		_, _ = w.Write(append(head, "}\n\n"...))
	case event.Failed:
		head = appendErrorMember(head, ev.Err, ev.Err.Type(), responseID)
		_, _ = w.Write(append(head, "}\n\n"...))
	case event.ToolCall:
		head = appendChoice(head, ev.Choice)
		head = appendTool(head, &ev.Tool)
		head = append(head, `"arguments":"`...)
		writeText(w, head, ev.Text, "\"}\n\n")
	default: // the deltas of text, reasoning and refusals
		head = appendChoice(head, ev.Choice)
		head = append(head, `"text":"`...)
		writeText(w, head, ev.Text, "\"}\n\n")
	}
}

// writeReconnect writes a reconnect frame: head, which is its lines up to the
// event's name, and the rest.
func writeReconnect(w *bufio.Writer, head []byte, retry time.Duration, reason string) {
	ms := retry.Round(time.Millisecond).Milliseconds()
	b := append(head, "retry: "...)
	b = strconv.AppendInt(b, ms, 10)
	b = append(b, "\ndata: {\"reason\":\""...)
	b = json.Append(b, reason)
	b = append(b, `","retry_ms":`...)
	b = strconv.AppendInt(b, ms, 10)
	_, _ = w.Write(append(b, "}\n\n"...))
}

// appendEventName appends the line with the name of an event where it has one.
func appendEventName(b []byte, name string) []byte {
	if name == "" {
		return b
	}
	b = append(b, "event: "...)
	b = append(b, name...)
	return append(b, '\n')
}

// appendChoice appends the member that names the choice where it is not the
// first.
func appendChoice(b []byte, choice int) []byte {
	if choice == 0 {
		return b
	}
	b = append(b, `"choice":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	return append(b, ',')
}

// appendTool appends the members that name a tool call.
func appendTool(b []byte, tool *event.Tool) []byte {
	b = append(b, `"index":`...)
	b = strconv.AppendInt(b, int64(tool.Index), 10)
	b = append(b, ',')
	if tool.ID != "" {
		b = append(b, `"id":"`...)
		b = append(json.Append(b, tool.ID), `",`...)
	}
	if tool.Name != "" {
		b = append(b, `"name":"`...)
		b = append(json.Append(b, tool.Name), `",`...)
	}
	return b
}

// appendResult appends the members of a done frame.
func appendResult(b []byte, r *event.Result) []byte {
	b = append(b, `"finish_reason":"`...)
	b = append(b, r.Finish...)
	b = append(b, '"')
	if r.ProviderFinish != "" && r.ProviderFinish != string(r.Finish) {
		b = append(b, `,"provider_finish_reason":"`...)
		b = append(json.Append(b, r.ProviderFinish), '"')
	}
	if len(r.Choices) > 0 {
		b = append(b, `,"choices":[`...)
		for i, c := range r.Choices {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"choice":`...)
			b = strconv.AppendInt(b, int64(c.Choice), 10)
			b = append(b, `,"finish_reason":"`...)
			b = append(b, c.Finish...)
			b = append(b, `"}`...)
		}
		b = append(b, ']')
	}
	if r.Usage != nil {
		b = appendUsage(b, r.Usage)
	}
	return b
}

// appendUsage appends the member with the token counts that the provider gave;
// nothing where it gave none.
func appendUsage(b []byte, u *event.TokenUsage) []byte {
	if u.Input < 0 && u.Output < 0 {
		return b
	}
	b = append(b, `,"usage":{`...)
	b = appendCount(b, "input_tokens", u.Input)
	b = appendCount(b, "output_tokens", u.Output)
	b = appendPart(b, "cached_input_tokens", u.CachedInput)
	b = appendPart(b, "cache_write_tokens", u.CacheWrite)
	b = appendPart(b, "reasoning_tokens", u.Reasoning)
	return append(b, '}')
}

// appendCount appends a member with a count, nothing where it is negative.
func appendCount(b []byte, name string, n int64) []byte {
	if n < 0 {
		return b
	}
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, n, 10)
}

// appendPart is appendCount for a part of another count, which is left out
// where it is 0.
func appendPart(b []byte, name string, n int64) []byte {
	if n <= 0 {
		return b
	}
	return appendCount(b, name, n)
}

var _ Encoder = (*Text)(nil)
