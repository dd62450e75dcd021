package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// cohere decodes the streams of Cohere's chat, version 2:
// https://docs.cohere.com/reference/chat-stream
//
// The plan that a model makes before it calls tools is reasoning. No event
// names the model.
type cohere struct {
	calls toolCalls
	begun bool
}

func newCohere() Decoder { return new(cohere) }

// isCohere tells an event by its type. Other APIs have underscores in theirs.
func isCohere(p probe) bool {
	switch p.typ() {
	case "message-start", "content-start", "content-delta", "content-end", "tool-plan-delta",
		"tool-call-start", "tool-call-delta", "tool-call-end", "message-end":
		return true
	}
	return false
}

// cohereMeaning tells which events carry no output, and which is the end.
func cohereMeaning(name string) meaning {
	switch name {
	case "message-start", "content-end", "tool-call-end", "citation-start", "citation-end", "debug":
		return carriesNone
	case "message-end":
		return isEnd
	}
	return mayCarryOutput
}

// cohereEvent is what an event carries: the insides of strings. What is not
// there is nil.
type cohereEvent struct {
	kind     []byte
	id       []byte
	index    int64
	text     []byte
	thinking []byte
	plan     []byte
	tool     chatFragment
	finish   []byte
	usage    event.TokenUsage
	failure  []byte // an error, whole
}

// Decode translates one event.
func (d *cohere) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := cohereEvent{kind: ev.Name, usage: noUsage}
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Delta(event.Reasoning, 0, e.plan)
	out.Delta(event.Reasoning, 0, e.thinking)
	out.Delta(event.Text, 0, e.text)
	switch string(e.kind) {
	case "message-start":
		out.Identify(nil, e.id)
	case "tool-call-start":
		call := d.calls.open(toolCall{index: e.index})
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(e.tool.id), Name: word(e.tool.name)}, e.tool.args)
	case "tool-call-delta":
		if call := d.calls.find(e.index); call != nil {
			out.Tool(0, call.canonical, e.tool.args)
		}
	case "message-end":
		out.Usage(e.usage)
		out.Finish(0, e.finish)
		e.end(out)
	case "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-end":
	default: // a citation, say
		out.Silent()
	}
	return nil
}

// end adds the end of the message, which may be that it has failed.
func (e *cohereEvent) end(out *Events) {
	if e.failure != nil {
		out.Fail(sse.Event{Data: append(append([]byte(`{"error":`), e.failure...), '}')})
		return
	}
	out.End()
}

func (e *cohereEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			e.kind = c.Str()
		case "id":
			e.id = c.Str()
		case "index":
			e.index = c.Count()
		case "delta":
			e.readDelta(c)
		default:
			c.Skip()
		}
	}
}

func (e *cohereEvent) readDelta(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "message":
			e.readMessage(c)
		case "finish_reason":
			e.finish = c.Str()
		case "usage":
			e.usage = decodeCohereUsage(c)
		case "error":
			e.readFailure(c)
		default:
			c.Skip()
		}
	}
}

// readMessage reads the part of a message, in which content and tool_calls are
// one object each; the message-start has empty lists in their place.
func (e *cohereEvent) readMessage(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			for ok := c.Enter('{'); ok; ok = c.More('{') {
				switch string(c.Key()) {
				case "text":
					e.text = c.Text()
				case "thinking":
					e.thinking = c.Text()
				default:
					c.Skip()
				}
			}
		case "tool_plan":
			e.plan = c.Str()
		case "tool_calls":
			for ok := c.Enter('{'); ok; ok = c.More('{') {
				switch string(c.Key()) {
				case "id":
					e.tool.id = c.Str()
				case "function":
					e.tool.readFunction(c)
				default:
					c.Skip()
				}
			}
		default:
			c.Skip()
		}
	}
}

// readFailure reads an error field.
func (e *cohereEvent) readFailure(c *json.Cursor) {
	if raw := c.Raw(); isError(raw) {
		e.failure = raw
	}
}

// decodeCohereUsage reads the counts of tokens, and where there are none of
// the tokens that are billed.
func decodeCohereUsage(c *json.Cursor) event.TokenUsage {
	tokens, billed := noUsage, noUsage
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "tokens":
			tokens = decodeUsage(c)
		case "billed_units":
			billed = decodeUsage(c)
		default:
			c.Skip()
		}
	}
	if tokens == noUsage {
		return billed
	}
	return tokens
}

var _ Decoder = (*cohere)(nil)
