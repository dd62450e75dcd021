package emit

import (
	"bufio"
	"net/http"
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// AISDK encodes the UI message stream, version 1, of Vercel's AI SDK (ai
// 5.0.92 and later, whose finish part has a reason). A message has one choice
// only, so the others are dropped. A refusal is text.
//
// The start part has no message id: where a client goes on with a message, it
// must keep the one that it has. A tool call is available, which is when
// clients run the tool, only once the response is complete, so that nothing
// runs on arguments that were cut off; until then they are kept. A client that
// begins in the middle of a call gets nothing of it.
//
// An error is an error part and no [DONE]; a cancelled response has an abort
// part instead of finish.
type AISDK struct {
	responseID string
	begun      bool
	part       event.Kind // Text or Reasoning while such a part is open
	parts      int        // how many parts have begun; the id of the open one is one less
	calls      []uiCall
	byIndex    map[int]int // of calls, by Tool.Index
	held       int         // bytes in calls
	failed     *event.Error
}

// uiCall is a tool call whose input is not available yet.
type uiCall struct {
	id    []byte // escaped
	name  []byte // escaped
	input []byte // JSON text, not escaped
}

// NewAISDK returns an encoder for one client of a response.
func NewAISDK(responseID string) *AISDK {
	return &AISDK{responseID: responseID}
}

// Header implements Encoder.
func (a *AISDK) Header(h http.Header) {
	setHeader(h, eventStream, a.responseID)
	h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
}

// Encode implements Encoder.
func (a *AISDK) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	if ev.Choice != 0 || a.failed != nil {
		return
	}
	switch ev.Kind {
	case event.Text, event.Refusal:
		a.begin(w)
		a.writeDelta(w, event.Text, ev.Text)
	case event.Reasoning:
		a.begin(w)
		a.writeDelta(w, event.Reasoning, ev.Text)
	case event.ToolCall:
		a.begin(w)
		a.writeToolCall(w, ev)
	case event.Done:
		a.begin(w)
		a.endPart(w)
		a.writeEnd(w, ev.Result)
	case event.Failed:
		writeUIError(w, ev.Err)
	default: // facts for a Reader, which no log holds
	}
}

func writeUIError(w *bufio.Writer, err *event.Error) {
	b := append(reserve(w, headRoom), `data: {"type":"error","errorText":"`...)
	b = json.Append(b, err.Error())
	_, _ = w.Write(append(b, "\"}\n\n"...))
}

func (a *AISDK) failure() *event.Error { return a.failed }

func (a *AISDK) begin(w *bufio.Writer) {
	if !a.begun {
		a.begun = true
		_, _ = w.WriteString("data: {\"type\":\"start\"}\n\ndata: {\"type\":\"start-step\"}\n\n")
	}
}

// writeDelta writes a delta of a part, which it opens where another one or
// none is open.
func (a *AISDK) writeDelta(w *bufio.Writer, part event.Kind, text []byte) {
	if a.part != part {
		a.endPart(w)
		a.part = part
		a.parts++
		_, _ = w.Write(append(a.appendPart(w, "-start"), "}\n\n"...))
	}
	writeText(w, append(a.appendPart(w, "-delta"), `,"delta":"`...), text, "\"}\n\n")
}

// endPart ends the open part, if there is one.
func (a *AISDK) endPart(w *bufio.Writer) {
	if a.part != 0 {
		_, _ = w.Write(append(a.appendPart(w, "-end"), "}\n\n"...))
		a.part = 0
	}
}

// appendPart begins a frame of the open part in the free memory of w.
func (a *AISDK) appendPart(w *bufio.Writer, what string) []byte {
	b := append(reserve(w, headRoom), `data: {"type":"`...)
	if a.part == event.Reasoning {
		b = append(b, "reasoning"...)
	} else {
		b = append(b, "text"...)
	}
	b = append(b, what...)
	b = append(b, `","id":"`...)
	b = strconv.AppendInt(b, int64(a.parts-1), 10)
	return append(b, '"')
}

func (a *AISDK) writeToolCall(w *bufio.Writer, ev *event.Event) {
	i, ok := a.byIndex[ev.Tool.Index]
	if !ok && !opensCall(ev) {
		return
	}
	a.endPart(w)
	if !ok {
		i = a.openCall(w, ev)
	}
	if len(ev.Text) == 0 {
		return
	}
	if a.held += len(ev.Text); a.held > maxHeld {
		a.failed, a.calls = errHeldTooMuch, nil
		writeUIError(w, a.failed)
		return
	}
	c := &a.calls[i]
	c.input = json.AppendPlain(c.input, ev.Text)
	b := append(c.appendFrame(w, "tool-input-delta"), `,"inputTextDelta":"`...)
	writeText(w, b, ev.Text, "\"}\n\n")
}

// openCall begins a call and returns its place in calls.
func (a *AISDK) openCall(w *bufio.Writer, ev *event.Event) int {
	if a.byIndex == nil {
		a.byIndex = make(map[int]int)
	}
	i := len(a.calls)
	a.byIndex[ev.Tool.Index] = i
	a.calls = append(a.calls, uiCall{
		id:   appendCallID(nil, "call_", a.responseID, ev),
		name: json.Append(nil, ev.Tool.Name),
	})
	c := &a.calls[i]
	a.held += len(c.id) + len(c.name)
	_, _ = w.Write(append(c.appendNamed(w, "tool-input-start"), "}\n\n"...))
	return i
}

// writeInput writes that the input of the call is available, or that it is no
// JSON text. A call without input has an empty one, and an input that is free
// text is a string, unless the response was cut short.
func (c *uiCall) writeInput(w *bufio.Writer, reason event.FinishReason) {
	if reason == event.FinishToolCalls {
		switch {
		case len(c.input) == 0:
			c.input = []byte("{}")
		case c.input[0] != '{' && c.input[0] != '[' && !json.IsValue(c.input):
			c.input = append(json.Append([]byte{'"'}, string(c.input)), '"')
		}
	}
	if input, ok := json.AppendCompact(nil, c.input); ok {
		b := append(c.appendNamed(w, "tool-input-available"), `,"input":`...)
		_, _ = w.Write(append(append(b, input...), "}\n\n"...))
		return
	}
	b := append(c.appendNamed(w, "tool-input-error"), `,"input":"`...)
	b = json.Append(b, string(c.input))
	_, _ = w.Write(append(b, "\",\"errorText\":\"the input is not valid JSON\"}\n\n"...))
}

// appendNamed begins a frame of the call, with its name.
func (c *uiCall) appendNamed(w *bufio.Writer, part string) []byte {
	b := append(c.appendFrame(w, part), `,"toolName":"`...)
	return append(append(b, c.name...), '"')
}

// appendFrame begins a frame of the call in the free memory of w.
func (c *uiCall) appendFrame(w *bufio.Writer, part string) []byte {
	b := append(reserve(w, headRoom+len(c.id)), `data: {"type":"`...)
	b = append(b, part...)
	b = append(b, `","toolCallId":"`...)
	return append(append(b, c.id...), '"')
}

func (a *AISDK) writeEnd(w *bufio.Writer, r *event.Result) {
	if r.Finish == event.FinishCancelled {
		_, _ = w.WriteString("data: {\"type\":\"abort\"}\n\ndata: [DONE]\n\n")
		return
	}
	for i := range a.calls {
		a.calls[i].writeInput(w, r.Finish)
	}
	_, _ = w.WriteString("data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"finish\",\"finishReason\":\"")
	_, _ = w.WriteString(uiFinish(r.Finish))
	_, _ = w.WriteString("\"}\n\ndata: [DONE]\n\n")
}

// uiFinish returns the finish reason in the words of the SDK, whose schema
// allows no others.
func uiFinish(reason event.FinishReason) string {
	switch reason {
	case event.FinishStop, event.FinishLength:
		return string(reason)
	case event.FinishToolCalls:
		return "tool-calls"
	case event.FinishContentFilter:
		return "content-filter"
	default:
		return "other"
	}
}

var _ Encoder = (*AISDK)(nil)
