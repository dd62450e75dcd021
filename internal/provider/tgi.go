package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// tgi decodes the streams of Hugging Face's text-generation-inference, of
// /generate_stream and of / with "stream": true:
// https://huggingface.github.io/text-generation-inference/
//
// The last event has the whole text in generated_text, which is null until
// then. Tokens that are special mark the end of the text and the like.
type tgi struct {
	said  spoken
	begun bool
}

func newTGI() Decoder { return new(tgi) }

func isTGI(p probe) bool { return p.object.Get("token.text").Type == gjson.String }

// tgiEvent is what an event carries: the insides of strings. What is not there
// is nil.
type tgiEvent struct {
	text    []byte
	whole   []byte // of the last event
	special bool
	finish  []byte
	usage   event.TokenUsage
	isLast  bool
}

// Decode translates one event.
func (d *tgi) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := tgiEvent{usage: noUsage}
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	if !e.special {
		d.said.add(out.Delta(event.Text, 0, e.text))
	}
	out.Delta(event.Text, 0, d.said.rest(e.whole))
	out.Usage(e.usage)
	out.Finish(0, e.finish)
	if e.isLast {
		out.End()
	}
	return nil
}

func (e *tgiEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "token":
			for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
				switch string(c.Key()) {
				case "text":
					e.text = c.Text()
				case "special":
					e.special = c.Bool()
				default:
					c.Skip()
				}
			}
		case "generated_text":
			e.isLast = c.Peek() == '"'
			e.whole = c.Str()
		case "details":
			for ok := c.Enter('{'); ok; ok = c.More('{') {
				switch string(c.Key()) {
				case "finish_reason":
					e.finish = c.Str()
				case "generated_tokens":
					e.usage.Output = c.Count()
				case "input_length":
					e.usage.Input = c.Count()
				default:
					c.Skip()
				}
			}
		default:
			c.Skip()
		}
	}
}

var _ Decoder = (*tgi)(nil)
