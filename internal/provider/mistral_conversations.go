package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// mistralConversations decodes the streams of Mistral's Conversations:
// https://docs.mistral.ai/api/endpoint/beta/conversations
//
// Agents hand over to each other and run tools of Mistral's in one response,
// which is work of the model that is no event. No event has a finish reason.
//
// The documentation does not say whether the arguments of a function call come
// in fragments: they are put together by tool_call_id, which every event of a
// call has. Nor does it say how an error ends a response; one is taken for the
// end.
type mistralConversations struct {
	calls toolCalls
	begun bool
}

func newMistralConversations() Decoder { return new(mistralConversations) }

func isMistralConversations(p probe) bool {
	kind := p.typ()
	return kind == "message.output.delta" || kind == "function.call.delta" || strings.HasPrefix(kind, "conversation.response.") ||
		strings.HasPrefix(kind, "tool.execution.") || strings.HasPrefix(kind, "agent.handoff.")
}

// conversationsMeaning tells which events carry no output, and which are the
// end.
func conversationsMeaning(name string) meaning {
	switch name {
	case "conversation.response.done":
		return isEnd
	case "conversation.response.error":
		return isFailure
	case "message.output.delta", "function.call.delta":
		return mayCarryOutput
	}
	if isMistralConversations(probe{name: name}) {
		return carriesNone
	}
	return mayCarryOutput
}

// conversationEvent is what an event carries: the insides of strings, other
// values whole. What is not there is nil.
type conversationEvent struct {
	kind   []byte
	id     []byte // of the conversation
	model  []byte
	text   []byte
	parts  []byte // content that is an array
	part   []byte // content that is one part
	callID []byte
	name   []byte
	args   arguments
	usage  event.TokenUsage
}

// Decode translates one event.
func (d *mistralConversations) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := conversationEvent{kind: ev.Name, usage: noUsage}
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Identify(e.model, e.id)
	switch kind := string(e.kind); kind {
	case "message.output.delta":
		e.emitContent(out)
	case "function.call.delta":
		d.decodeCall(&e, out)
	case "conversation.response.done":
		out.Usage(e.usage)
		out.End()
	case "conversation.response.error":
		out.Fail(ev)
	case "conversation.response.started":
	default: // a tool that Mistral runs, a handoff
		out.Silent()
	}
	return nil
}

func (e *conversationEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			e.kind = c.Str()
		case "conversation_id":
			e.id = c.Str()
		case "model":
			e.model = c.Str()
		case "content":
			e.readContent(c)
		case "tool_call_id":
			e.callID = c.Str()
		case "name":
			e.name = c.Str()
		case "arguments":
			if c.Peek() == '{' {
				e.args.object = c.Raw()
			} else {
				e.args.text = c.Str()
			}
		case "usage":
			e.usage = decodeUsage(c)
		default:
			c.Skip()
		}
	}
}

// readContent reads content: a text, a part, or a list of either.
func (e *conversationEvent) readContent(c *json.Cursor) {
	switch c.Peek() {
	case '"':
		e.text = c.Quoted()
	case '{':
		e.part = c.Raw()
	default:
		e.parts = c.Output('[')
	}
}

// emitContent adds content. A reference or a file in it is output that is no
// event.
func (e *conversationEvent) emitContent(out *Events) {
	out.Delta(event.Text, 0, e.text)
	if e.parts != nil {
		emitParts(e.parts, 0, out)
	}
	if e.part != nil {
		c := json.MakeCursor(e.part)
		emitPart(&c, 0, out)
	}
}

// decodeCall adds a fragment of a function call, the first of which opens it.
func (d *mistralConversations) decodeCall(e *conversationEvent, out *Events) {
	for i := len(d.calls.list) - 1; i >= 0; i-- {
		if call := &d.calls.list[i]; len(e.callID) == 0 || isCallID(e.callID, call.id) {
			out.Tool(0, call.canonical, e.args)
			return
		}
	}
	call := d.calls.open(toolCall{id: callID(e.callID)})
	out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(e.callID), Name: word(e.name)}, e.args)
}

var _ Decoder = (*mistralConversations)(nil)
