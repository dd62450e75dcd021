package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// tgi decodes the streams of Hugging Face's text-generation-inference, of
// /generate_stream and of / with "stream": true:
// https://huggingface.github.io/text-generation-inference/
//
// The last event has the whole text in generated_text, which is null until
// then. Tokens that are special mark the end of the text and the like.
type tgi struct{ begun bool }

func newTGI() Decoder { return new(tgi) }

func isTGI(p probe) bool { return p.object.Get("token.text").Type == gjson.String }

// tgiEvent is what an event carries: the insides of strings. What is not there
// is nil.
type tgiEvent struct {
	text    []byte
	special bool
	finish  []byte
	usage   event.TokenUsage
	isLast  bool
	failed  bool
}

// Decode translates one event.
func (d *tgi) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	e := tgiEvent{usage: noUsage}
	e.read(&c)
	if !c.end() {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	if e.failed {
		out.Fail(ev)
		return nil
	}
	if !e.special {
		out.Delta(event.Text, 0, e.text)
	}
	out.Usage(e.usage)
	out.Finish(0, e.finish)
	if e.isLast {
		out.End()
	}
	return nil
}

func (e *tgiEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "token":
			for ok := c.enterOutput('{'); ok; ok = c.more('{') {
				switch string(c.key()) {
				case "text":
					e.text = readText(c)
				case "special":
					e.special = c.boolean()
				default:
					c.skip()
				}
			}
		case "generated_text":
			e.isLast = c.peek() == '"'
			c.skip()
		case "details":
			for ok := c.enter('{'); ok; ok = c.more('{') {
				switch string(c.key()) {
				case "finish_reason":
					e.finish = c.str()
				case "generated_tokens":
					e.usage.Output = c.count()
				case "input_length":
					e.usage.Input = c.count()
				default:
					c.skip()
				}
			}
		case "error":
			e.failed = c.isError()
		default:
			c.skip()
		}
	}
}

var _ Decoder = (*tgi)(nil)
