package provider

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
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
	usage  apartCounts
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
	c := json.MakeCursor(ev.Data)
	var e anthropicEvent
	e.read(&c)
	if !out.whole(&c) {
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
		d.decodeMessageStart(e.message, out)
	case "message_delta":
		d.decodeMessageDelta(&e, out)
	case "message_stop":
		out.End()
	case "completion":
		out.Identify(e.model, e.id)
		out.Delta(event.Text, 0, e.completion)
		if len(e.stopReason) > 0 {
			out.Finish(0, e.stopReason)
			out.End()
		}
	}
	return nil
}

func (e *anthropicEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			e.kind = c.Str()
		case "index":
			e.index = c.Count()
		case "delta":
			e.delta.read(c)
		case "content_block":
			e.block = c.Raw()
		case "message":
			e.message = c.Raw()
		case "usage":
			e.usage = c.Raw()
		case "completion":
			e.completion = c.Str()
		case "stop_reason":
			e.stopReason = c.Str()
		case "model":
			e.model = c.Str()
		case "id":
			e.id = c.Str()
		default:
			c.Skip()
		}
	}
}

func (d *anthropicDelta) read(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			d.kind = c.Str()
		case "text":
			d.text = c.Str()
		case "thinking":
			d.thinking = c.Str()
		case "partial_json":
			d.partialJSON = c.Str()
		case "stop_reason":
			d.stopReason = c.Str()
		case "stop_details":
			d.stopDetails = c.Raw()
		default:
			c.Skip()
		}
	}
}

// decodeDelta adds the delta of a content block. Signatures, citations,
// compactions and the input of a tool that the provider runs are output that
// is no event.
func (d *anthropic) decodeDelta(e *anthropicEvent, out *Events) {
	switch string(e.delta.kind) {
	case "text_delta":
		out.Delta(event.Text, 0, e.delta.text)
	case "thinking_delta":
		out.Delta(event.Reasoning, 0, e.delta.thinking)
	case "input_json_delta":
		b := d.block(e.index)
		switch {
		case b == nil || !b.tool:
			out.Silent()
		case !b.whole:
			out.Tool(0, b.call, arguments{text: e.delta.partialJSON})
		}
	default:
		out.Silent()
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
	c := json.MakeCursor(e.block)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			kind = c.Str()
		case "text":
			text = c.Str()
		case "thinking":
			thinking = c.Str()
		case "id":
			id = c.Str()
		case "name":
			name = c.Str()
		case "input":
			input = c.Raw()
		default:
			c.Skip()
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
		out.OpenTool(0, event.Tool{Index: b.call, ID: callID(id), Name: word(name)}, arguments{object: input})
		d.addBlock(b)
	default:
		out.Silent()
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
	c := json.MakeCursor(raw)
	return c.Peek() == '{' && c.Open('{')
}

func (d *anthropic) decodeMessageStart(message []byte, out *Events) {
	var model, id []byte
	c := json.MakeCursor(message)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "model":
			model = c.Str()
		case "id":
			id = c.Str()
		case "usage":
			out.Usage(d.usage.read(&c))
		default:
			c.Skip()
		}
	}
	out.Identify(model, id)
}

// decodeMessageDelta adds the end of the message. A refusal may come with an explanation of it.
func (d *anthropic) decodeMessageDelta(e *anthropicEvent, out *Events) {
	if e.usage != nil {
		out.Usage(d.usage.read(json.NewCursor(e.usage)))
	}
	if string(e.delta.stopReason) == "refusal" {
		details := json.MakeCursor(e.delta.stopDetails)
		out.Delta(event.Refusal, 0, details.Field("explanation"))
	}
	out.Finish(0, e.delta.stopReason)
}

var _ Decoder = (*anthropic)(nil)
