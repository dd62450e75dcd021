package provider

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// maxBlocks is how many content blocks that have not stopped are remembered.
// Anthropic itself sends one block after the other.
const maxBlocks = 64

// anthropic decodes the streams of Anthropic's messages, and of the legacy
// text completions before them.
//
// A second message_start in one stream, which some relays send, goes on with
// the same response.
type anthropic struct {
	blocks []anthropicBlock // that have started and not stopped
	calls  int
	opened bool
}

// anthropicBlock is a content block.
type anthropicBlock struct {
	index int64
	call  int  // index of its tool call
	tool  bool // it is a tool call for the client
	whole bool // whose input came with its start
}

func newAnthropic() Decoder { return new(anthropic) }

// isAnthropic tells an event by its type.
func isAnthropic(p probe) bool {
	switch p.typ() {
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop",
		"message_delta", "message_stop":
		return true
	case "completion":
		return p.object.Get("completion").Exists()
	}
	return false
}

// anthropicMeaning tells which events carry no output, and which is the end.
func anthropicMeaning(name string) meaning {
	switch name {
	case "message_start", "content_block_stop", "message_delta", "ping":
		return carriesNone
	case "message_stop":
		return isEnd
	}
	return mayCarryOutput
}

// anthropicEvent is what an event carries: the insides of strings, objects
// whole. What is not there is nil.
type anthropicEvent struct {
	kind    []byte
	index   int64
	message []byte
	block   []byte
	usage   []byte
	delta   anthropicDelta

	// Of the legacy API, at the top level.
	completion []byte
	stopReason []byte
	model, id  []byte
}

// anthropicDelta is a delta, of a content block or of the message.
type anthropicDelta struct {
	kind        []byte
	text        []byte
	thinking    []byte
	partialJSON []byte
	stopReason  []byte
	stopDetails []byte
}

// Decode translates one event.
func (d *anthropic) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	var e anthropicEvent
	e.read(&c)
	if !c.end() {
		return errInvalid
	}
	if !d.opened {
		d.opened = true
		out.Open(0)
	}
	kind := e.kind
	if len(kind) == 0 {
		kind = ev.Name
	}
	switch string(kind) {
	case "content_block_delta":
		d.decodeDelta(&e, out)
	case "content_block_start":
		d.startBlock(&e, out)
	case "content_block_stop":
		d.blocks = slices.DeleteFunc(d.blocks, func(b anthropicBlock) bool { return b.index == e.index })
	case "message_start":
		decodeMessageStart(e.message, out)
	case "message_delta":
		decodeMessageDelta(&e, out)
	case "message_stop":
		out.End()
	case "completion":
		out.Identify(e.model, e.id)
		out.Delta(event.Text, 0, e.completion)
		if len(e.stopReason) > 0 {
			out.Finish(0, e.stopReason)
			out.End()
		}
	case "error":
		out.Fail(ev)
	}
	return nil
}

func (e *anthropicEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			e.kind = c.str()
		case "index":
			e.index = c.count()
		case "delta":
			e.delta.read(c)
		case "content_block":
			e.block = c.raw()
		case "message":
			e.message = c.raw()
		case "usage":
			e.usage = c.raw()
		case "completion":
			e.completion = c.str()
		case "stop_reason":
			e.stopReason = c.str()
		case "model":
			e.model = c.str()
		case "id":
			e.id = c.str()
		default:
			c.skip()
		}
	}
}

func (d *anthropicDelta) read(c *cursor) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			d.kind = c.str()
		case "text":
			d.text = c.str()
		case "thinking":
			d.thinking = c.str()
		case "partial_json":
			d.partialJSON = c.str()
		case "stop_reason":
			d.stopReason = c.str()
		case "stop_details":
			d.stopDetails = c.raw()
		default:
			c.skip()
		}
	}
}

// decodeDelta adds the delta of a content block. Signatures, citations and
// compactions are not output.
func (d *anthropic) decodeDelta(e *anthropicEvent, out *Events) {
	switch string(e.delta.kind) {
	case "text_delta":
		out.Delta(event.Text, 0, e.delta.text)
	case "thinking_delta":
		out.Delta(event.Reasoning, 0, e.delta.thinking)
	case "input_json_delta":
		if b := d.block(e.index); b != nil && b.tool && !b.whole {
			out.Tool(0, b.call, arguments{text: e.delta.partialJSON})
		}
	}
}

// block returns the content block with this index, nil where it has not
// started.
func (d *anthropic) block(index int64) *anthropicBlock {
	for i := range d.blocks {
		if d.blocks[i].index == index {
			return &d.blocks[i]
		}
	}
	return nil
}

// startBlock begins a content block. Of tools, those that the provider runs
// itself are not the client's.
func (d *anthropic) startBlock(e *anthropicEvent, out *Events) {
	var kind, text, thinking, id, name, input []byte
	c := cursor{data: e.block}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			kind = c.str()
		case "text":
			text = c.str()
		case "thinking":
			thinking = c.str()
		case "id":
			id = c.str()
		case "name":
			name = c.str()
		case "input":
			input = c.raw()
		default:
			c.skip()
		}
	}
	switch string(kind) {
	case "text":
		out.Delta(event.Text, 0, text)
	case "thinking":
		out.Delta(event.Reasoning, 0, thinking)
	case "tool_use":
		b := anthropicBlock{index: e.index, call: d.calls, tool: true, whole: hasMembers(input)}
		d.calls++
		if !b.whole {
			input = nil
		}
		out.OpenTool(0, event.Tool{Index: b.call, ID: unquote(id), Name: unquote(name)}, arguments{object: input})
		d.addBlock(b)
	default:
		d.addBlock(anthropicBlock{index: e.index})
	}
}

// addBlock remembers a block, in place of an earlier one with its index.
func (d *anthropic) addBlock(b anthropicBlock) {
	if old := d.block(b.index); old != nil {
		*old = b
		return
	}
	if len(d.blocks) == maxBlocks {
		d.blocks = slices.Delete(d.blocks, 0, 1)
	}
	d.blocks = append(d.blocks, b)
}

// hasMembers reports whether a JSON value is an object that is not empty.
func hasMembers(raw []byte) bool {
	c := cursor{data: raw}
	return c.peek() == '{' && c.open('{')
}

func decodeMessageStart(message []byte, out *Events) {
	var model, id []byte
	c := cursor{data: message}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "model":
			model = c.str()
		case "id":
			id = c.str()
		case "usage":
			out.Usage(decodeUsage(&c, "input_tokens", "output_tokens"))
		default:
			c.skip()
		}
	}
	out.Identify(model, id)
}

// decodeMessageDelta adds the end of the message. Its token counts replace
// those of the start. A refusal may come with an explanation of it.
func decodeMessageDelta(e *anthropicEvent, out *Events) {
	out.Usage(decodeUsage(&cursor{data: e.usage}, "input_tokens", "output_tokens"))
	if string(e.delta.stopReason) == "refusal" {
		details := cursor{data: e.delta.stopDetails}
		out.Delta(event.Refusal, 0, details.field("explanation"))
	}
	out.Finish(0, e.delta.stopReason)
}

var _ Decoder = (*anthropic)(nil)
