package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// openAIResponses decodes the streams of OpenAI's Responses:
// https://platform.openai.com/docs/api-reference/responses-streaming
//
// The same text is sent five times, in deltas and then whole with every level
// that ends; only the deltas are read. The arguments of a tool call are the
// exception, since LM Studio has no deltas for them.
//
// OpenRouter and Bedrock send no event names, OpenRouter adds [DONE], and
// llama.cpp leaves out output_index.
type openAIResponses struct {
	calls toolCalls // by output_index
	begun bool
}

func newOpenAIResponses() Decoder { return new(openAIResponses) }

func isOpenAIResponses(p probe) bool { return strings.HasPrefix(p.typ(), "response.") }

// responsesMeaning tells which events carry no output, and which are the end.
// A failure is not an end that may pass for a good one.
func responsesMeaning(name string) meaning {
	switch name {
	case "response.created", "response.in_progress", "response.queued", "keepalive",
		"response.content_part.added", "response.content_part.done", "response.output_text.done",
		"response.output_text.annotation.added", "response.refusal.done",
		"response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
		"response.reasoning_summary_text.done", "response.reasoning_part.added", "response.reasoning_part.done",
		"response.reasoning_text.done":
		return carriesNone
	case "response.completed", "response.incomplete":
		return isEnd
	}
	for _, tool := range []string{"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_"} {
		if strings.HasPrefix(name, "response."+tool) {
			return carriesNone
		}
	}
	return mayCarryOutput
}

// responsesEvent is what an event carries: the insides of strings, objects
// whole. What is not there is nil.
type responsesEvent struct {
	kind     []byte
	delta    []byte
	item     []byte
	response []byte
	args     []byte // of a tool call, whole
	itemID   []byte
	output   int64
}

// Decode translates one event.
func (d *openAIResponses) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	e := responsesEvent{kind: ev.Name, output: -1}
	e.read(&c)
	if !c.end() {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	switch string(e.kind) {
	case "response.output_text.delta":
		out.Delta(event.Text, 0, e.delta)
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		out.Delta(event.Reasoning, 0, e.delta)
	case "response.refusal.delta":
		out.Delta(event.Refusal, 0, e.delta)
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if call := d.find(e.output, e.itemID); call != nil {
			call.spoke = true
			out.Tool(0, call.canonical, arguments{text: e.delta})
		}
	case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
		d.complete(d.find(e.output, e.itemID), e.args, out)
	case "response.output_item.added", "response.output_item.done":
		d.decodeItem(&e, string(e.kind) == "response.output_item.done", out)
	case "response.completed", "response.incomplete", "response.cancelled", "response.failed":
		decodeResponseEnd(e.response, out)
	case "error":
		out.Fail(ev)
	default:
		if e.response != nil { // created, queued, in_progress
			var r responsesObject
			r.read(e.response)
			out.Identify(r.model, r.id)
		}
	}
	return nil
}

func (e *responsesEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			e.kind = c.str()
		case "delta":
			e.delta = c.str()
		case "item":
			e.item = c.raw()
		case "response":
			e.response = c.raw()
		case "arguments", "input":
			e.args = c.str()
		case "item_id":
			e.itemID = c.str()
		case "output_index":
			e.output = c.count()
		default:
			c.skip()
		}
	}
}

// decodeItem opens a tool call when its item is added. When the item is done,
// it makes up for what has not come in events of its own.
func (d *openAIResponses) decodeItem(e *responsesEvent, done bool, out *Events) {
	var kind, itemID, callID, name, args []byte
	c := cursor{data: e.item}
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			kind = c.str()
		case "id":
			itemID = c.str()
		case "call_id":
			callID = c.str()
		case "name":
			name = c.str()
		case "arguments", "input":
			args = c.str()
		default:
			c.skip()
		}
	}
	switch string(kind) {
	case "function_call", "custom_tool_call":
	default: // an answer, or a tool that the provider runs itself
		return
	}
	call := d.find(e.output, itemID)
	if call == nil {
		call = d.calls.open(toolCall{index: e.output, item: string(itemID)})
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: unquote(callID), Name: unquote(name)}, arguments{})
	}
	if done {
		d.complete(call, args, out)
	}
}

// complete adds the arguments of a tool call that has come without them.
func (d *openAIResponses) complete(call *toolCall, args []byte, out *Events) {
	if call != nil && !call.spoke && len(args) > 0 {
		call.spoke = true
		out.Tool(0, call.canonical, arguments{text: args})
	}
}

// find returns the tool call with this index, or where there is none with this
// item; nil where it was not opened. The index goes first, because some relays
// give an item another id with every event.
func (d *openAIResponses) find(output int64, item []byte) *toolCall {
	if output >= 0 {
		if call := d.calls.find(output); call != nil {
			return call
		}
	}
	for i := range d.calls.list {
		call := &d.calls.list[i]
		if len(item) > 0 && string(item) == call.item && (output < 0 || call.index < 0) {
			return call
		}
	}
	return nil
}

// responsesObject is the response that an event carries.
type responsesObject struct {
	id, model  []byte
	status     []byte
	reason     []byte // of incomplete_details
	usage      event.TokenUsage
	hasFailure bool
}

func (r *responsesObject) read(response []byte) {
	r.usage = noUsage
	c := cursor{data: response}
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "id":
			r.id = c.str()
		case "model":
			r.model = c.str()
		case "status":
			r.status = c.str()
		case "incomplete_details":
			r.reason = c.field("reason")
		case "usage":
			r.usage = decodeUsage(&c, "input_tokens", "output_tokens")
		case "error":
			r.hasFailure = c.isError()
		default:
			c.skip()
		}
	}
}

// decodeResponseEnd adds the end of the response, good or bad.
func decodeResponseEnd(response []byte, out *Events) {
	var r responsesObject
	r.read(response)
	out.Identify(r.model, r.id)
	out.Usage(r.usage)
	switch {
	case r.hasFailure:
		out.Fail(sse.Event{Data: response})
	case string(r.status) == "failed":
		out.Fail(sse.Event{Data: []byte(`{"message":"the response has failed"}`)})
	case len(r.reason) > 0:
		out.Finish(0, r.reason)
		out.End()
	default:
		out.Finish(0, r.status)
		out.End()
	}
}

var _ Decoder = (*openAIResponses)(nil)
