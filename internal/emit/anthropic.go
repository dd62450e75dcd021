package emit

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// Anthropic encodes the events of Anthropic's messages: message_start, the
// content blocks, message_delta, message_stop. A message has one choice only,
// so the others are dropped. A refusal is text, as it is with Anthropic. A
// block of thinking has no signature, since no canonical event carries one.
//
// The SDKs add a delta to the block that began last, so blocks follow each
// other strictly: what comes while the arguments of a call are not whole waits
// until they are, or until the end of the response. They also parse the
// arguments, and fail on what is no JSON object: the free text that a custom
// tool of OpenAI's takes becomes {"input":"…"}.
//
// An error is an error event and no message_stop.
type Anthropic struct {
	responseID string
	model      string
	begun      bool // message_start has been written
	index      int  // of the next block
	calls      int  // how many calls have begun or wait
	open       block
	waiting    []block
}

// block is a content block: Text, Reasoning or ToolCall, or none with a zero
// kind.
type block struct {
	kind event.Kind
	call int       // Tool.Index of a ToolCall
	args arguments // of a ToolCall that is open
	id   []byte    // escaped; of a ToolCall that waits
	name []byte    // likewise
	held []byte    // text that is not written yet
}

// takes reports whether an event goes on with the block.
func (b *block) takes(kind event.Kind, ev *event.Event) bool {
	return b.kind == kind && (kind != event.ToolCall || b.call == ev.Tool.Index)
}

// whole reports whether the block can be closed.
func (b *block) whole() bool { return b.kind != event.ToolCall || b.args.whole }

// NewAnthropic returns an encoder for one client of a response. The id of the
// message is "msg_" and the response id.
func NewAnthropic(responseID, model string) *Anthropic {
	return &Anthropic{responseID: responseID, model: model}
}

// SetModel implements ModelSetter.
func (a *Anthropic) SetModel(model string) { a.model = model }

// Header implements Encoder.
func (a *Anthropic) Header(h http.Header) {
	setHeader(h, eventStream, a.responseID)
}

// Encode implements Encoder.
func (a *Anthropic) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	switch {
	case ev.Kind == event.Failed:
		b := append(reserve(w, headRoom), "event: error\ndata: "...)
		b = AppendAnthropicError(b, ev.Err, a.responseID)
		_, _ = w.Write(append(b, "\n\n"...))
	case ev.Kind == event.Done:
		a.begin(w)
		a.closeAll(w)
		a.writeEnd(w, ev.Result)
	case ev.Kind.IsOutput() && ev.Choice == 0:
		a.begin(w)
		a.output(w, ev)
	}
}

// begin writes message_start before everything else. Its usage is not known
// yet; message_delta sets it right.
func (a *Anthropic) begin(w *bufio.Writer) {
	if a.begun {
		return
	}
	a.begun = true
	b := append(reserve(w, headRoom), "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_"...)
	b = append(b, a.responseID...)
	b = append(b, `","type":"message","role":"assistant","model":"`...)
	b = json.Append(b, a.model)
	b = append(b, `","content":[],"stop_reason":null,"stop_sequence":null,`...)
	_, _ = w.Write(append(b, "\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}}\n\n"...))
}

// output writes an output to its block, or lets it wait.
func (a *Anthropic) output(w *bufio.Writer, ev *event.Event) {
	kind := ev.Kind
	if kind == event.Refusal {
		kind = event.Text
	}
	switch {
	case a.open.takes(kind, ev):
		a.writeDelta(w, ev.Text)
		if len(a.waiting) > 0 && a.open.whole() {
			a.promote(w)
		}
	case len(a.waiting) > 0 || !a.open.whole():
		a.wait(kind, ev)
	default:
		if b, ok := a.newBlock(kind, ev); ok {
			b.held = ev.Text
			a.waiting = append(a.waiting, b)
			a.next(w)
		}
	}
}

// wait keeps an output until the open block is whole.
func (a *Anthropic) wait(kind event.Kind, ev *event.Event) {
	n := len(a.waiting)
	if kind != event.ToolCall && n > 0 && a.waiting[n-1].kind == kind {
		a.waiting[n-1].held = append(a.waiting[n-1].held, ev.Text...)
		return
	}
	for i := range a.waiting {
		if kind == event.ToolCall && a.waiting[i].takes(kind, ev) {
			a.waiting[i].held = append(a.waiting[i].held, ev.Text...)
			return
		}
	}
	if b, ok := a.newBlock(kind, ev); ok {
		b.held = bytes.Clone(ev.Text)
		a.waiting = append(a.waiting, b)
	}
}

// newBlock returns the block that an output begins. There is none for a
// fragment of a call that was closed: it is dropped, as nothing can follow on
// arguments that were whole.
func (a *Anthropic) newBlock(kind event.Kind, ev *event.Event) (b block, ok bool) {
	b.kind = kind
	if kind == event.ToolCall {
		if ev.Tool.Index < a.calls {
			return block{}, false
		}
		a.calls = ev.Tool.Index + 1
		b.call = ev.Tool.Index
		b.id = appendCallID(nil, "toolu_", a.responseID, ev)
		b.name = json.Append(nil, ev.Tool.Name)
	}
	return b, true
}

// promote closes the open block and opens those that wait, up to the first
// that is not whole yet.
func (a *Anthropic) promote(w *bufio.Writer) {
	for len(a.waiting) > 0 && a.open.whole() {
		a.next(w)
	}
}

// closeAll closes the open block and writes those that wait, as they are.
func (a *Anthropic) closeAll(w *bufio.Writer) {
	for len(a.waiting) > 0 {
		a.next(w)
	}
	a.close(w)
}

// next closes the open block and opens the first that waits.
func (a *Anthropic) next(w *bufio.Writer) {
	a.close(w)
	a.open, a.waiting = a.waiting[0], a.waiting[1:]
	b := a.appendBlockEvent(w, "content_block_start")
	b = append(b, `,"content_block":{"type":"`...)
	switch a.open.kind {
	case event.Reasoning:
		b = append(b, `thinking","thinking":"","signature":""`...)
	case event.ToolCall:
		b = append(b, `tool_use","id":"`...)
		b = append(b, a.open.id...)
		b = append(b, `","name":"`...)
		b = append(b, a.open.name...)
		b = append(b, `","input":{}`...)
	default:
		b = append(b, `text","text":""`...)
	}
	_, _ = w.Write(append(b, "}}\n\n"...))
	held := a.open.held
	a.open.held = nil
	a.writeDelta(w, held)
}

// writeDelta writes a delta of the open block.
func (a *Anthropic) writeDelta(w *bufio.Writer, text []byte) {
	if len(text) == 0 {
		return
	}
	b := a.appendBlockEvent(w, "content_block_delta")
	switch a.open.kind {
	case event.Reasoning:
		b = append(b, `,"delta":{"type":"thinking_delta","thinking":"`...)
	case event.ToolCall:
		a.writeArguments(w, b, text)
		return
	default:
		b = append(b, `,"delta":{"type":"text_delta","text":"`...)
	}
	writeText(w, b, text, "\"}}\n\n")
}

// writeArguments writes a delta of a call, which b begins.
func (a *Anthropic) writeArguments(w *bufio.Writer, b, text []byte) {
	args := &a.open.args
	first := !args.begun
	args.feed(text)
	b = append(b, `,"delta":{"type":"input_json_delta","partial_json":"`...)
	if args.free {
		if first {
			b = append(b, `{\"input\":\"`...)
		}
		b = json.Append(b, string(text)) // a string in a string
		text = nil
	}
	writeText(w, b, text, "\"}}\n\n")
}

// close closes the open block, if there is one.
func (a *Anthropic) close(w *bufio.Writer) {
	if a.open.kind == 0 {
		return
	}
	if a.open.args.free {
		b := a.appendBlockEvent(w, "content_block_delta")
		_, _ = w.Write(append(b, `,"delta":{"type":"input_json_delta","partial_json":"\"}"}}`+"\n\n"...))
	}
	_, _ = w.Write(append(a.appendBlockEvent(w, "content_block_stop"), "}\n\n"...))
	a.open = block{}
	a.index++
}

// appendBlockEvent begins an event of the open block in the free memory of w.
func (a *Anthropic) appendBlockEvent(w *bufio.Writer, name string) []byte {
	b := append(reserve(w, 2*headRoom), "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, name...)
	b = append(b, `","index":`...)
	return strconv.AppendInt(b, int64(a.index), 10)
}

// writeEnd writes message_delta and message_stop. SDKs need output_tokens, so
// it is 0 where it is not known.
func (a *Anthropic) writeEnd(w *bufio.Writer, r *event.Result) {
	b := append(reserve(w, 2*headRoom), "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
	b = append(b, anthropicStop(r)...)
	b = append(b, `","stop_sequence":null}`...)
	usage := event.TokenUsage{Input: -1}
	if r.Usage != nil {
		usage = *r.Usage
		usage.Output = max(usage.Output, 0)
	}
	b = appendUsage(b, `,"usage":`, "input_tokens", "output_tokens", &usage)
	b = append(b, "}\n\n"...)
	_, _ = w.Write(append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...))
}

// anthropicStop returns the stop reason in Anthropic's words: the provider's
// own where it is one, else the nearest. What was cut short must not look
// whole.
func anthropicStop(r *event.Result) string {
	if r.Finish != event.FinishCancelled {
		switch r.ProviderFinish {
		case "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded":
			return r.ProviderFinish
		}
	}
	switch r.Finish {
	case event.FinishLength, event.FinishCancelled:
		return "max_tokens"
	case event.FinishToolCalls:
		return "tool_use"
	case event.FinishContentFilter:
		return "refusal"
	case event.FinishPause:
		return "pause_turn"
	default:
		return "end_turn"
	}
}

var (
	_ Encoder     = (*Anthropic)(nil)
	_ ModelSetter = (*Anthropic)(nil)
)
