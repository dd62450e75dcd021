package provider

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
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
	c := cursor{data: ev.Data}
	var model, id []byte
	failed := false
	for more := d.begin(&c, out); more; more = c.more('{') {
		switch string(c.key()) {
		case "choices":
			d.rememberPrefix(&c)
			d.decodeChoices(&c, out)
		case "usage":
			out.Usage(decodeUsage(&c, "prompt_tokens", "completion_tokens"))
		case "x_groq":
			decodeGroq(&c, out)
		case "model":
			model = c.str()
		case "id":
			id = c.str()
		case "object":
			failed = string(c.str()) == "error" || failed // older vLLM
		case "error":
			failed = c.isError() || failed
		default:
			c.skip()
		}
	}
	if !c.end() {
		return errInvalid
	}
	out.Identify(model, id)
	if failed {
		out.Fail(ev)
	}
	return nil
}

// begin enters a chunk. Where it begins as the last one did, which with most
// servers is half of it, the beginning is not read again: it has passed for
// valid, and to note the same facts twice would change nothing.
func (d *openAIChat) begin(c *cursor, out *Events) bool {
	if len(d.prefix) == 0 || !bytes.HasPrefix(c.data, d.prefix) {
		d.prefix = d.prefix[:0]
		return c.open('{')
	}
	c.pos = len(d.prefix)
	c.depth = 1
	d.decodeChoices(c, out)
	return c.more('{')
}

// rememberPrefix keeps how a chunk begins, up to the value of its choices, at
// which the cursor is.
func (d *openAIChat) rememberPrefix(c *cursor) {
	if len(d.prefix) == 0 && c.pos <= maxPrefix && !c.bad {
		d.prefix = append(d.prefix, c.data[:c.pos]...)
	}
}

// decodeGroq reads the usage that Groq hides in a field of its own.
func decodeGroq(c *cursor, out *Events) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "usage":
			out.Usage(decodeUsage(c, "prompt_tokens", "completion_tokens"))
		default:
			c.skip()
		}
	}
}

// decodeUsage reads an object with token counts under the given names.
func decodeUsage(c *cursor, input, output string) event.TokenUsage {
	usage := noUsage
	if c.peek() != '{' {
		c.skip()
		return usage
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case input:
			usage.Input = c.count()
		case output:
			usage.Output = c.count()
		default:
			c.skip()
		}
	}
	return usage
}

func (d *openAIChat) decodeChoices(c *cursor, out *Events) {
	for ok := c.enterOutput('['); ok; ok = c.more('[') {
		d.decodeChoice(c, out)
	}
}

// decodeChoice reads one choice. Its index may come after its delta, so that
// the delta is kept until all of the choice is read.
func (d *openAIChat) decodeChoice(c *cursor, out *Events) {
	var delta chatDelta
	var message, finish []byte
	index, hasDelta := int64(0), false
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "delta":
			hasDelta = delta.read(c) || hasDelta
		case "index":
			index = max(c.count(), 0)
		case "finish_reason":
			finish = c.str()
		case "message":
			message = c.raw()
		default:
			c.skip()
		}
	}
	if index >= maxChoices {
		c.fail()
	}
	if c.bad {
		return
	}
	choice := d.choice(int(index), out)
	// Beside a delta, the message repeats everything so far. Alone, it is the
	// answer of a server that does not stream.
	if !hasDelta && !choice.spoke && message != nil {
		delta.read(&cursor{data: message})
	}
	before := len(out.list)
	delta.emit(int(index), choice, out)
	choice.spoke = choice.spoke || len(out.list) > before
	out.Finish(int(index), finish)
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
