package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// bedrockConverse decodes the frames of Amazon Bedrock's ConverseStream:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
//
// What an event is says its name alone. No event names the model. Content
// blocks of text have no start with most models; those of tools do.
type bedrockConverse struct {
	calls toolCalls // for the client, by index of the content block
	begun bool
}

func newBedrockConverse() Decoder { return new(bedrockConverse) }

func isBedrockConverse(p probe) bool {
	switch p.name {
	case "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata":
		return p.object.Exists()
	}
	return false
}

// converseMeaning tells which events carry no output, and which is the end.
func converseMeaning(name string) meaning {
	switch name {
	case "messageStart", "contentBlockStop", "messageStop":
		return carriesNone
	case "metadata":
		return isEnd
	}
	return mayCarryOutput
}

// converseEvent is what an event carries: the insides of strings. What is not
// there is nil.
type converseEvent struct {
	block      int64
	text       []byte
	reasoning  []byte
	toolInput  []byte
	toolID     []byte
	toolName   []byte
	toolType   []byte
	isTool     bool
	stopReason []byte
	usage      event.TokenUsage
}

// Decode translates one event.
func (d *bedrockConverse) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	if d.decode(string(ev.Name), &c, out); !c.end() {
		return errInvalid
	}
	return nil
}

// decode translates the event with this name whose object is next.
func (d *bedrockConverse) decode(name string, c *cursor, out *Events) {
	e := converseEvent{usage: noUsage}
	e.read(c)
	if c.bad {
		return
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	switch name {
	case "contentBlockDelta":
		out.Delta(event.Reasoning, 0, e.reasoning)
		out.Delta(event.Text, 0, e.text)
		if call := d.calls.find(e.block); call != nil {
			out.Tool(0, call.canonical, arguments{text: e.toolInput})
		}
	case "contentBlockStart":
		// A server_tool_use is a tool that the provider runs itself.
		if e.isTool && (len(e.toolType) == 0 || string(e.toolType) == "tool_use") {
			call := d.calls.open(toolCall{index: e.block})
			out.OpenTool(0, event.Tool{Index: call.canonical, ID: unquote(e.toolID), Name: unquote(e.toolName)}, arguments{})
		}
	case "messageStop":
		out.Finish(0, e.stopReason)
	case "metadata":
		out.Usage(e.usage)
		out.End()
	}
}

func (e *converseEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "contentBlockIndex":
			e.block = c.count()
		case "start", "delta":
			e.readDelta(c)
		case "stopReason":
			e.stopReason = c.str()
		case "usage":
			e.usage = decodeUsage(c, "inputTokens", "outputTokens")
		default:
			c.skip()
		}
	}
}

// readDelta reads the start of a content block, or a delta of it. Citations,
// signatures and what is redacted are no output.
func (e *converseEvent) readDelta(c *cursor) {
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "text":
			e.text = readText(c)
		case "reasoningContent":
			e.reasoning = c.field("text")
		case "toolUse":
			e.readTool(c)
		default:
			c.skip()
		}
	}
}

func (e *converseEvent) readTool(c *cursor) {
	e.isTool = true
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "input":
			e.toolInput = c.str()
		case "toolUseId":
			e.toolID = c.str()
		case "name":
			e.toolName = c.str()
		case "type":
			e.toolType = c.str()
		default:
			c.skip()
		}
	}
}

var _ Decoder = (*bedrockConverse)(nil)
