package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
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
	c := json.MakeCursor(ev.Data)
	e := modelEvent{index: noIndex, usage: noUsage}
	e.read(&c)
	index, ok := out.Choice(e.index, true)
	if !out.whole(&c) || !ok {
		return errInvalid
	}
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

func (e *modelEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "generation", "outputText", "text":
			e.text = c.Text()
		case "outputs":
			e.readOutputs(c)
		case "stop_reason", "completionReason", "finish_reason":
			e.finish = c.Str()
		case "index":
			e.index = c.Count()
		case "prompt_token_count", "inputTextTokenCount":
			e.usage.Input = c.Count()
		case "generation_token_count", "totalOutputTextTokenCount":
			e.usage.Output = c.Count()
		default:
			c.Skip()
		}
	}
}

// readOutputs reads a list with one output.
func (e *modelEvent) readOutputs(c *json.Cursor) {
	for ok := c.EnterOutput('['); ok; ok = c.More('[') {
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "text":
				e.text = c.Text()
			case "stop_reason":
				e.finish = c.Str()
			default:
				c.Skip()
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
