package provider

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// openAIChat decodes OpenAI's chat completion chunks, and what the many
// servers that speak this format make of it.
type openAIChat struct {
	choices []chatChoice // by index
	// prefix is how the last chunk began, up to the value of its choices.
	prefix []byte
}

// maxPrefix is how much of the beginning of a chunk is remembered, in bytes.
const maxPrefix = 512

// chatChoice is what is known of one choice.
type chatChoice struct {
	seen   bool
	spoke  bool // it has produced output
	calls  []chatCall
	opened int // how many of the calls were passed on
}

func newOpenAIChat() Decoder { return new(openAIChat) }

// isOpenAIChat tells a chunk by its choices or its object. Together sends the
// text of the legacy API beside the delta, so that the delta is what counts.
func isOpenAIChat(p probe) bool {
	switch p.object.Get("object").String() {
	case "chat.completion.chunk", "chat.completion.done":
		return true
	}
	if choices := p.object.Get("choices"); !choices.IsArray() {
		return false
	}
	choice := p.object.Get("choices.0")
	return isObject(choice, "delta") || isObject(choice, "message")
}

func isObject(parent gjson.Result, field string) bool {
	return parent.IsObject() && parent.Get(field).IsObject()
}

// Decode translates one chunk.
func (d *openAIChat) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var model, id []byte
	for more := d.begin(&c, ev.Data, out); more; more = c.More('{') {
		switch string(c.Key()) {
		case "choices":
			d.rememberPrefix(&c, ev.Data)
			d.decodeChoices(&c, out)
		case "usage":
			out.Usage(decodeUsage(&c))
		case "x_groq":
			decodeGroq(&c, out)
		case "model":
			model = c.Str()
		case "id":
			id = c.Str()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	out.Identify(model, id)
	return nil
}

// begin enters a chunk. Where it begins as the last one did, which with most
// servers is half of it, the beginning is not read again: it has passed for
// valid, and to note the same facts twice would change nothing.
func (d *openAIChat) begin(c *json.Cursor, data []byte, out *Events) bool {
	if len(d.prefix) == 0 || !bytes.HasPrefix(data, d.prefix) {
		d.prefix = d.prefix[:0]
		return c.Open('{')
	}
	c.Inside(len(d.prefix))
	d.decodeChoices(c, out)
	return c.More('{')
}

// rememberPrefix keeps how a chunk begins, up to the value of its choices, at
// which the cursor is.
func (d *openAIChat) rememberPrefix(c *json.Cursor, data []byte) {
	if len(d.prefix) == 0 && c.Pos() <= maxPrefix && !c.Bad() {
		d.prefix = append(d.prefix, data[:c.Pos()]...)
	}
}

// decodeGroq reads the usage that Groq hides in a field of its own.
func decodeGroq(c *json.Cursor, out *Events) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "usage":
			out.Usage(decodeUsage(c))
		default:
			c.Skip()
		}
	}
}

func (d *openAIChat) decodeChoices(c *json.Cursor, out *Events) {
	first := true
	for ok := c.EnterOutput('['); ok; ok = c.More('[') {
		d.decodeChoice(c, first, out)
		first = false
	}
}

// decodeChoice reads one choice. Its index may come after its delta, so that
// the delta is kept until all of the choice is read.
func (d *openAIChat) decodeChoice(c *json.Cursor, first bool, out *Events) {
	var delta chatDelta
	var message, finish []byte
	index, hasDelta := int64(-1), false
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "delta":
			hasDelta = delta.read(c) || hasDelta
		case "index":
			index = c.Count()
		case "finish_reason":
			finish = c.Str()
		case "message":
			message = c.Raw()
		case "usage": // Moonshot
			out.Usage(decodeUsage(c))
		default:
			c.Skip()
		}
	}
	at, ok := out.Choice(index, first && c.Peek() == ']')
	if !ok {
		c.Fail()
	}
	if c.Bad() {
		return
	}
	choice := d.choice(at, out)
	// Beside a delta, the message repeats everything so far. Alone, it is the
	// answer of a server that does not stream.
	if !hasDelta && !choice.spoke && message != nil {
		delta.read(json.NewCursor(message))
	}
	before := len(out.list)
	delta.emit(at, choice, out)
	choice.spoke = choice.spoke || len(out.list) > before
	out.Finish(at, finish)
}

// choice returns the choice with this index.
func (d *openAIChat) choice(index int, out *Events) *chatChoice {
	for len(d.choices) <= index {
		d.choices = append(d.choices, chatChoice{})
	}
	choice := &d.choices[index]
	if !choice.seen {
		choice.seen = true
		out.Open(index)
	}
	return choice
}

var _ Decoder = (*openAIChat)(nil)
