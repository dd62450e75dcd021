package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// openAICompletions decodes the chunks of OpenAI's legacy completions:
// https://platform.openai.com/docs/api-reference/completions
//
// Several choices may share one chunk. TGI sends an empty finish_reason with
// every chunk but the last. DeepSeek on Bedrock has a stop_reason in its place;
// with vLLM that is the stop sequence, beside a finish_reason.
type openAICompletions struct {
	choices []bool // by index, the ones that have begun
}

func newOpenAICompletions() Decoder { return new(openAICompletions) }

// isOpenAICompletions tells a chunk by its object or its choices. Chat chunks
// with a text beside the delta have been told before.
func isOpenAICompletions(p probe) bool {
	return p.object.Get("object").Str == "text_completion" ||
		p.object.Get("choices.0.text").Type == gjson.String
}

// Decode translates one chunk.
func (d *openAICompletions) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var model, id []byte
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "choices":
			d.decodeChoices(&c, out)
		case "usage":
			out.Usage(decodeUsage(&c))
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

func (d *openAICompletions) decodeChoices(c *json.Cursor, out *Events) {
	first := true
	for ok := c.EnterOutput('['); ok; ok = c.More('[') {
		var text, finish, stop []byte
		hasFinish := false
		index := int64(-1)
		for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "text":
				text = c.Text()
			case "index":
				index = c.Count()
			case "finish_reason":
				finish, hasFinish = c.Str(), true
			case "stop_reason":
				stop = c.Str()
			case "usage":
				out.Usage(decodeUsage(c))
			default:
				c.Skip()
			}
		}
		at, ok := out.Choice(index, first && c.Peek() == ']')
		first = false
		if !ok {
			c.Fail()
		}
		if c.Bad() {
			return
		}
		if !hasFinish {
			finish = stop
		}
		d.begin(at, out)
		out.Delta(event.Text, at, text)
		out.Finish(at, finish)
	}
}

// begin tells of a choice when it is first seen.
func (d *openAICompletions) begin(index int, out *Events) {
	for len(d.choices) <= index {
		d.choices = append(d.choices, false)
	}
	if !d.choices[index] {
		d.choices[index] = true
		out.Open(index)
	}
}

var _ Decoder = (*openAICompletions)(nil)
