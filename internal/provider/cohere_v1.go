package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// cohereV1 decodes the streams of Cohere's chat, version 1, one JSON object per
// line. Clients can ask for server-sent events with the same objects.
// https://docs.cohere.com/v1/reference/chat-stream
//
// The last event repeats the whole text.
type cohereV1 struct {
	calls toolCalls
	begun bool
}

func newCohereV1() Decoder { return new(cohereV1) }

func isCohereV1(p probe) bool {
	switch p.object.Get("event_type").Str {
	case "stream-start", "text-generation", "tool-calls-chunk", "tool-calls-generation", "citation-generation",
		"search-queries-generation", "search-results", "stream-end":
		return true
	}
	return false
}

// cohereV1Event is what an event carries: the insides of strings, arrays and
// objects whole. What is not there is nil.
type cohereV1Event struct {
	kind     []byte
	id       []byte
	text     []byte
	delta    []byte
	calls    []byte
	response []byte
	finish   []byte
	failed   bool
}

// Decode translates one event.
func (d *cohereV1) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	var e cohereV1Event
	e.read(&c)
	if !c.end() {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Identify(nil, e.id)
	switch {
	case e.failed:
		out.Fail(ev)
		return nil
	case string(e.kind) == "stream-end":
		e.end(out)
		return nil
	}
	switch string(e.kind) {
	case "text-generation":
		out.Delta(event.Text, 0, e.text)
	case "tool-calls-chunk":
		out.Delta(event.Reasoning, 0, e.text) // the plan
		d.decodeChunk(e.delta, out)
	case "tool-calls-generation":
		d.decodeCalls(e.calls, out)
	}
	return nil
}

func (e *cohereV1Event) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "event_type":
			e.kind = c.str()
		case "generation_id":
			e.id = c.str()
		case "text":
			e.text = readText(c)
		case "tool_call_delta":
			e.delta = c.raw()
		case "tool_calls":
			e.calls = c.raw()
		case "response":
			e.response = c.raw()
		case "finish_reason":
			e.finish = c.str()
		case "error":
			e.failed = c.isError()
		default:
			c.skip()
		}
	}
}

// decodeChunk adds a fragment of a tool call. The first one has its name.
func (d *cohereV1) decodeChunk(delta []byte, out *Events) {
	var name, params, text []byte
	index := int64(0)
	c := cursor{data: delta}
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "index":
			index = c.count()
		case "name":
			name = c.str()
		case "parameters":
			params = c.str()
		case "text":
			text = c.str()
		default:
			c.skip()
		}
	}
	out.Delta(event.Reasoning, 0, text)
	call := d.calls.find(index)
	switch {
	case len(name) > 0:
		call = d.calls.open(toolCall{index: index})
		out.OpenTool(0, event.Tool{Index: call.canonical, Name: unquote(name)}, arguments{text: params})
	case call != nil:
		out.Tool(0, call.canonical, arguments{text: params})
	}
}

// decodeCalls adds the tool calls that come whole, where none have come in
// chunks before.
func (d *cohereV1) decodeCalls(calls []byte, out *Events) {
	c := cursor{data: calls}
	chunks := d.calls.opened > 0
	for ok := c.enter('['); ok; ok = c.more('[') {
		var name, params []byte
		for ok := c.enter('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "name":
				name = c.str()
			case "parameters":
				params = c.raw()
			default:
				c.skip()
			}
		}
		if !chunks && !c.bad {
			call := d.calls.open(toolCall{index: -1})
			out.OpenTool(0, event.Tool{Index: call.canonical, Name: unquote(name)}, arguments{object: params})
		}
	}
}

// end adds the end of the stream, which may be that it has failed.
func (e *cohereV1Event) end(out *Events) {
	var id []byte
	usage := noUsage
	c := cursor{data: e.response}
	for ok := e.response != nil && c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "generation_id":
			id = c.str()
		case "meta":
			usage = decodeCohereUsage(&c)
		default:
			c.skip()
		}
	}
	out.Identify(nil, id)
	out.Usage(usage)
	if string(e.finish) == "ERROR" {
		out.Fail(sse.Event{Data: []byte(`{"message":"the generation has failed"}`)})
		return
	}
	out.Finish(0, e.finish)
	out.End()
}

var _ Decoder = (*cohereV1)(nil)
