package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// cohereV1 decodes the streams of Cohere's chat, version 1, one JSON object per
// line. Clients can ask for server-sent events with the same objects.
// https://docs.cohere.com/v1/reference/chat-stream
//
// The last event repeats the whole text and the tool calls.
type cohereV1 struct {
	calls toolCalls
	said  spoken
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
}

// Decode translates one event.
func (d *cohereV1) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var e cohereV1Event
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Identify(nil, e.id)
	switch string(e.kind) {
	case "stream-end":
		d.end(&e, out)
	case "text-generation":
		d.said.add(out.Delta(event.Text, 0, e.text))
	case "tool-calls-chunk":
		out.Delta(event.Reasoning, 0, e.text) // the plan
		d.decodeChunk(e.delta, out)
	case "tool-calls-generation":
		d.decodeCalls(e.calls, out)
	case "citation-generation", "search-queries-generation", "search-results":
		out.Silent()
	}
	return nil
}

func (e *cohereV1Event) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "event_type":
			e.kind = c.Str()
		case "generation_id":
			e.id = c.Str()
		case "text":
			e.text = c.Text()
		case "tool_call_delta":
			e.delta = c.Raw()
		case "tool_calls":
			e.calls = c.Raw()
		case "response":
			e.response = c.Raw()
		case "finish_reason":
			e.finish = c.Str()
		default:
			c.Skip()
		}
	}
}

// decodeChunk adds a fragment of a tool call. The first one has its name.
func (d *cohereV1) decodeChunk(delta []byte, out *Events) {
	var name, params, text []byte
	index := int64(0)
	c := json.MakeCursor(delta)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "index":
			index = c.Count()
		case "name":
			name = c.Str()
		case "parameters":
			params = c.Str()
		case "text":
			text = c.Str()
		default:
			c.Skip()
		}
	}
	out.Delta(event.Reasoning, 0, text)
	call := d.calls.find(index)
	switch {
	case len(name) > 0:
		call = d.calls.open(toolCall{index: index})
		out.OpenTool(0, event.Tool{Index: call.canonical, Name: word(name)}, arguments{text: params})
	case call != nil:
		out.Tool(0, call.canonical, arguments{text: params})
	}
}

// decodeCalls adds the tool calls that come whole, where none have come in
// chunks before.
func (d *cohereV1) decodeCalls(calls []byte, out *Events) {
	c := json.MakeCursor(calls)
	chunks := d.calls.opened > 0
	for ok := c.Enter('['); ok; ok = c.More('[') {
		var name, params []byte
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "name":
				name = c.Str()
			case "parameters":
				params = c.Raw()
			default:
				c.Skip()
			}
		}
		if !chunks && !c.Bad() {
			call := d.calls.open(toolCall{index: -1})
			out.OpenTool(0, event.Tool{Index: call.canonical, Name: word(name)}, arguments{object: params})
		}
	}
}

// end adds the end of the stream, which may be that it has failed.
func (d *cohereV1) end(e *cohereV1Event, out *Events) {
	var id, text []byte
	usage := noUsage
	c := json.MakeCursor(e.response)
	for ok := e.response != nil && c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "generation_id":
			id = c.Str()
		case "text":
			text = c.Str()
		case "tool_calls":
			d.decodeCalls(c.Raw(), out)
		case "meta":
			usage = decodeCohereUsage(&c)
		default:
			c.Skip()
		}
	}
	out.Identify(nil, id)
	out.Delta(event.Text, 0, d.said.rest(text))
	out.Usage(usage)
	out.Finish(0, e.finish)
	out.End()
}

var _ Decoder = (*cohereV1)(nil)
