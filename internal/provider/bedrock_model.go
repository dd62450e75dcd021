package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// bedrockModel decodes the events of the models on Amazon Bedrock whose own
// APIs send text and little else. Their members have different names, of which
// no two mean different things:
//
//	Llama    generation                  stop_reason       prompt_token_count, generation_token_count
//	Titan    outputText, index           completionReason  inputTextTokenCount, totalOutputTextTokenCount
//	Mistral  outputs[].text              outputs[].stop_reason
//	Cohere   text, index, is_finished    finish_reason
//
// https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html
type bedrockModel struct {
	choices []modelChoice // by index
}

// modelChoice is what is known of one choice.
type modelChoice struct{ seen, finished bool }

func isBedrockModel(p probe) bool {
	return p.object.Get("generation").Type == gjson.String ||
		p.object.Get("outputText").Type == gjson.String ||
		p.object.Get("outputs.0.text").Type == gjson.String ||
		p.object.Get("is_finished").IsBool()
}

// modelEvent is what an event carries: the insides of strings. What is not
// there is nil.
type modelEvent struct {
	text   []byte
	finish []byte
	index  int64 // noIndex where there is none
	usage  event.TokenUsage
}

// Decode translates one event.
func (d *bedrockModel) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	e := modelEvent{index: noIndex, usage: noUsage}
	e.read(&c)
	if !c.end() || e.index >= maxChoices {
		return errInvalid
	}
	index := max(int(e.index), 0)
	d.begin(index, out)
	out.Delta(event.Text, index, e.text)
	out.Usage(e.usage)
	if len(e.finish) == 0 {
		return nil
	}
	for i := range d.choices {
		// A reason without an index is that of all that still go on. Cohere
		// gives only one for several generations.
		if choice := &d.choices[i]; choice.seen && !choice.finished && (i == index || e.index == noIndex) {
			choice.finished = true
			out.Finish(i, e.finish)
		}
	}
	return nil
}

func (e *modelEvent) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "generation", "outputText", "text":
			e.text = readText(c)
		case "outputs":
			e.readOutputs(c)
		case "stop_reason", "completionReason", "finish_reason":
			e.finish = c.str()
		case "index":
			e.index = c.count()
		case "prompt_token_count", "inputTextTokenCount":
			e.usage.Input = c.count()
		case "generation_token_count", "totalOutputTextTokenCount":
			e.usage.Output = c.count()
		default:
			c.skip()
		}
	}
}

// readOutputs reads a list with one output.
func (e *modelEvent) readOutputs(c *cursor) {
	for ok := c.enterOutput('['); ok; ok = c.more('[') {
		for ok := c.enter('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "text":
				e.text = readText(c)
			case "stop_reason":
				e.finish = c.str()
			default:
				c.skip()
			}
		}
	}
}

// begin tells of a choice when it is first seen.
func (d *bedrockModel) begin(index int, out *Events) {
	for len(d.choices) <= index {
		d.choices = append(d.choices, modelChoice{})
	}
	if !d.choices[index].seen {
		d.choices[index].seen = true
		out.Open(index)
	}
}

var _ Decoder = (*bedrockModel)(nil)
