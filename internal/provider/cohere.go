package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
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
	c := cursor{data: ev.Data}
	e := cohereEvent{kind: ev.Name, usage: noUsage}
	e.read(&c)
	if !c.end() {
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
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: unquote(e.tool.id), Name: unquote(e.tool.name)}, e.tool.args)
	case "tool-call-delta":
		if call := d.calls.find(e.index); call != nil {
			out.Tool(0, call.canonical, e.tool.args)
		}
	case "message-end":
		out.Usage(e.usage)
		out.Finish(0, e.finish)
		e.end(out)
	default:
		if e.failure != nil {
			out.Fail(ev)
		}
	}
	return nil
}

// end adds the end of the message, which may be that it has failed.
func (e *cohereEvent) end(out *Events) {
	switch {
	case e.failure != nil:
		out.Fail(sse.Event{Data: append(append([]byte(`{"error":`), e.failure...), '}')})
	case string(e.finish) == "ERROR":
		out.Fail(sse.Event{Data: []byte(`{"message":"the generation has failed"}`)})
	default:
		out.End()
	}
}

func (e *cohereEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			e.kind = c.str()
		case "id":
			e.id = c.str()
		case "index":
			e.index = c.count()
		case "delta":
			e.readDelta(c)
		case "error":
			e.readFailure(c)
		default:
			c.skip()
		}
	}
}

func (e *cohereEvent) readDelta(c *cursor) {
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "message":
			e.readMessage(c)
		case "finish_reason":
			e.finish = c.str()
		case "usage":
			e.usage = decodeCohereUsage(c)
		case "error":
			e.readFailure(c)
		default:
			c.skip()
		}
	}
}

// readMessage reads the part of a message, in which content and tool_calls are
// one object each; the message-start has empty lists in their place.
func (e *cohereEvent) readMessage(c *cursor) {
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "content":
			for ok := c.enter('{'); ok; ok = c.more('{') {
				switch string(c.key()) {
				case "text":
					e.text = readText(c)
				case "thinking":
					e.thinking = readText(c)
				default:
					c.skip()
				}
			}
		case "tool_plan":
			e.plan = c.str()
		case "tool_calls":
			for ok := c.enter('{'); ok; ok = c.more('{') {
				switch string(c.key()) {
				case "id":
					e.tool.id = c.str()
				case "function":
					e.tool.readFunction(c)
				default:
					c.skip()
				}
			}
		default:
			c.skip()
		}
	}
}

// readFailure reads an error field.
func (e *cohereEvent) readFailure(c *cursor) {
	start := *c
	if c.isError() {
		e.failure = start.raw()
	}
}

// decodeCohereUsage reads the counts of tokens, and where there are none of
// the tokens that are billed.
func decodeCohereUsage(c *cursor) event.TokenUsage {
	tokens, billed := noUsage, noUsage
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "tokens":
			tokens = decodeUsage(c, "input_tokens", "output_tokens")
		case "billed_units":
			billed = decodeUsage(c, "input_tokens", "output_tokens")
		default:
			c.skip()
		}
	}
	if tokens == noUsage {
		return billed
	}
	return tokens
}

var _ Decoder = (*cohere)(nil)
