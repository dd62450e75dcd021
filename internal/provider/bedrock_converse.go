package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// bedrockConverse decodes the frames of Amazon Bedrock's ConverseStream:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
//
// What an event is says its name alone. No event names the model. Content
// blocks of text have no start with most models; those of tools do.
type bedrockConverse struct {
	calls toolCalls // for the client, by index of the content block
	usage apartCounts
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
	usage      []byte
	silent     bool // there is output that is no event
}

// Decode translates one event.
func (d *bedrockConverse) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	if d.decode(string(ev.Name), &c, out); !out.whole(&c) {
		return errInvalid
	}
	return nil
}

// decode translates the event with this name whose object is next.
func (d *bedrockConverse) decode(name string, c *json.Cursor, out *Events) {
	var e converseEvent
	e.read(c)
	if c.Bad() {
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
		} else if e.silent || len(e.toolInput) > 0 {
			out.Silent()
		}
	case "contentBlockStart":
		// A server_tool_use is a tool that the provider runs itself.
		if e.isTool && (len(e.toolType) == 0 || string(e.toolType) == "tool_use") {
			call := d.calls.open(toolCall{index: e.block})
			out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(e.toolID), Name: word(e.toolName)}, arguments{})
		}
	case "messageStop":
		out.Finish(0, e.stopReason)
	case "metadata":
		if e.usage != nil {
			out.Usage(d.usage.read(json.NewCursor(e.usage)))
		}
		out.End()
	}
}

func (e *converseEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "contentBlockIndex":
			e.block = c.Count()
		case "start", "delta":
			e.readDelta(c)
		case "stopReason":
			e.stopReason = c.Str()
		case "usage":
			e.usage = c.Raw()
		default:
			c.Skip()
		}
	}
}

// readDelta reads the start of a content block, or a delta of it. Citations,
// signatures, images and what is redacted are output that is no event.
func (e *converseEvent) readDelta(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "text":
			e.text = c.Text()
		case "reasoningContent":
			e.reasoning = c.Field("text")
		case "toolUse":
			e.readTool(c)
		default:
			e.silent = !isEmpty(c.Raw()) || e.silent
		}
	}
}

func (e *converseEvent) readTool(c *json.Cursor) {
	e.isTool = true
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "input":
			e.toolInput = c.Str()
		case "toolUseId":
			e.toolID = c.Str()
		case "name":
			e.toolName = c.Str()
		case "type":
			e.toolType = c.Str()
		default:
			c.Skip()
		}
	}
}

var _ Decoder = (*bedrockConverse)(nil)
