package emit

import (
	"bufio"
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
// tool of OpenAI's takes becomes {"input":"…"}. A client that begins in the
// middle of a call gets nothing of it: half a call must not look whole.
//
// An error is an error event and no message_stop.
type Anthropic struct {
	responseID string
	model      string
	usage      *event.TokenUsage // so far, for message_start
	begun      bool              // message_start has been written
	index      int               // of the next block
	calls      int               // how many calls have begun or wait
	open       *block            // nil where none is
	waiting    []*block
	byCall     map[int]*block // those that wait, by the index of the call
	held       int            // bytes in those that wait
	failed     *event.Error
}

// block is a content block: Text, Reasoning or ToolCall.
type block struct {
	kind event.Kind
	call int           // Tool.Index of a ToolCall
	args json.Progress // of a ToolCall that is open
	id   []byte        // escaped; of a ToolCall that waits
	name []byte        // likewise
	held []byte        // text that is not written yet
}

// takes reports whether an event goes on with the block, which may be none.
func (b *block) takes(kind event.Kind, ev *event.Event) bool {
	return b != nil && b.kind == kind && (kind != event.ToolCall || b.call == ev.Tool.Index)
}

// whole reports whether the block can be closed.
func (b *block) whole() bool { return b == nil || b.kind != event.ToolCall || b.args.Whole() }

// NewAnthropic returns an encoder for one client of a response. The id of the
// message is "msg_" and the response id.
func NewAnthropic(responseID, model string) *Anthropic {
	return &Anthropic{responseID: responseID, model: model}
}

// SetModel implements ModelSetter.
func (a *Anthropic) SetModel(model string) { a.model = model }

// SetUsage implements UsageSetter.
func (a *Anthropic) SetUsage(usage *event.TokenUsage) { a.usage = usage }

func (a *Anthropic) failure() *event.Error { return a.failed }

// Header implements Encoder.
func (a *Anthropic) Header(h http.Header) {
	setHeader(h, eventStream, a.responseID)
}

// Encode implements Encoder.
func (a *Anthropic) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	switch {
	case a.failed != nil:
	case ev.Kind == event.Failed:
		a.writeError(w, ev.Err)
	case ev.Kind == event.Done:
		a.begin(w)
		a.closeAll(w)
		a.writeEnd(w, ev.Result)
	case ev.Kind.IsOutput() && ev.Choice == 0:
		a.begin(w)
		a.output(w, ev)
	}
}

func (a *Anthropic) writeError(w *bufio.Writer, err *event.Error) {
	b := append(reserve(w, headRoom), "event: error\ndata: "...)
	b = AppendAnthropicError(b, err, a.responseID)
	_, _ = w.Write(append(b, "\n\n"...))
}

// begin writes message_start before everything else. It has the input that is
// known by then; message_delta sets it right.
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
	usage := event.TokenUsage{}
	if a.usage != nil {
		usage = *a.usage
	}
	usage.Input, usage.Output = max(usage.Input, 0), 0
	_, _ = w.Write(append(appendAnthropicUsage(append(b, `"usage":`...), &usage), "}}\n\n"...))
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
		if a.held > maxHeld {
			a.failed = errHeldTooMuch
			a.writeError(w, a.failed)
			a.waiting, a.byCall = nil, nil
		}
	default:
		if b := a.newBlock(kind, ev); b != nil {
			b.held = ev.Text
			a.push(b)
			a.next(w)
		}
	}
}

// wait keeps an output until the open block is whole.
func (a *Anthropic) wait(kind event.Kind, ev *event.Event) {
	b := a.byCall[ev.Tool.Index]
	if n := len(a.waiting); kind != event.ToolCall {
		b = nil
		if n > 0 && a.waiting[n-1].kind == kind {
			b = a.waiting[n-1]
		}
	}
	if b == nil {
		if b = a.newBlock(kind, ev); b == nil {
			return
		}
		a.push(b)
	}
	b.held = append(b.held, ev.Text...)
	a.held += len(ev.Text)
}

// push puts a block behind those that wait.
func (a *Anthropic) push(b *block) {
	a.waiting = append(a.waiting, b)
	a.held += len(b.id) + len(b.name) + len(b.held)
	if b.kind == event.ToolCall {
		if a.byCall == nil {
			a.byCall = make(map[int]*block)
		}
		a.byCall[b.call] = b
	}
}

// newBlock returns the block that an output begins. There is none for a
// fragment of a call that was closed, as nothing can follow on arguments that
// were whole, nor for one of a call whose beginning this client has not had:
// they are dropped.
func (a *Anthropic) newBlock(kind event.Kind, ev *event.Event) *block {
	b := &block{kind: kind}
	if kind == event.ToolCall {
		if ev.Tool.Index < a.calls || !opensCall(ev) {
			return nil
		}
		a.calls = ev.Tool.Index + 1
		b.call = ev.Tool.Index
		b.id = appendCallID(nil, "toolu_", a.responseID, ev)
		b.name = json.Append(nil, ev.Tool.Name)
	}
	return b
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
	a.held -= len(a.open.id) + len(a.open.name) + len(a.open.held)
	if a.open.kind == event.ToolCall {
		delete(a.byCall, a.open.call)
	}
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
	first := !args.Begun()
	args.Feed(text)
	b = append(b, `,"delta":{"type":"input_json_delta","partial_json":"`...)
	if args.Free() {
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
	if a.open == nil {
		return
	}
	if a.open.args.Free() {
		b := a.appendBlockEvent(w, "content_block_delta")
		_, _ = w.Write(append(b, `,"delta":{"type":"input_json_delta","partial_json":"\"}"}}`+"\n\n"...))
	}
	_, _ = w.Write(append(a.appendBlockEvent(w, "content_block_stop"), "}\n\n"...))
	a.open = nil
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
	b = appendAnthropicUsage(append(b, `,"usage":`...), &usage)
	b = append(b, "}\n\n"...)
	_, _ = w.Write(append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...))
}

// appendAnthropicUsage appends token counts as Anthropic counts: what came from a
// cache and what went into it beside the rest of the input.
func appendAnthropicUsage(b []byte, u *event.TokenUsage) []byte {
	input := u.Input
	if input >= 0 {
		input = max(input-u.CachedInput-u.CacheWrite, 0)
	}
	b = append(b, '{')
	b = appendCount(b, "input_tokens", input)
	b = appendPart(b, "cache_creation_input_tokens", u.CacheWrite)
	b = appendPart(b, "cache_read_input_tokens", u.CachedInput)
	b = appendCount(b, "output_tokens", u.Output)
	return append(b, '}')
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
	_ UsageSetter = (*Anthropic)(nil)
)
