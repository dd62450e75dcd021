package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
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
	c := cursor{data: ev.Data}
	var model, id []byte
	failed := false
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "choices":
			d.decodeChoices(&c, out)
		case "usage":
			out.Usage(decodeUsage(&c, "prompt_tokens", "completion_tokens"))
		case "model":
			model = c.str()
		case "id":
			id = c.str()
		case "error":
			failed = c.isError()
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

func (d *openAICompletions) decodeChoices(c *cursor, out *Events) {
	for ok := c.enterOutput('['); ok; ok = c.more('[') {
		var text, finish, stop []byte
		hasFinish := false
		var index int64
		for ok := c.open('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "text":
				text = readText(c)
			case "index":
				index = max(c.count(), 0)
			case "finish_reason":
				finish, hasFinish = c.str(), true
			case "stop_reason":
				stop = c.str()
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
		if !hasFinish {
			finish = stop
		}
		d.begin(int(index), out)
		out.Delta(event.Text, int(index), text)
		out.Finish(int(index), finish)
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

// readText reads a string that is output, nil where it is null. Anything else
// cannot be decoded.
func readText(c *cursor) []byte {
	switch c.peek() {
	case '"':
		return c.quoted()
	case 'n':
		c.skip()
	default:
		c.fail()
	}
	return nil
}

var _ Decoder = (*openAICompletions)(nil)
