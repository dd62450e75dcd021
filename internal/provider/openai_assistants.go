package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// openAIAssistants decodes the streams of runs of OpenAI's Assistants:
// https://platform.openai.com/docs/api-reference/assistants-streaming/events
//
// What an event is says its name; its data is the object that has changed. The
// text comes in deltas of messages, tool calls in deltas of steps, and how the
// run ended in the run. Then there is a done with [DONE]. A message that is
// complete repeats its text, and of a server that sends no deltas has all of it.
type openAIAssistants struct {
	calls    toolCalls // of functions
	said     spoken    // of the message that is open
	declined spoken    // of its refusal
	begun    bool
}

func newOpenAIAssistants() Decoder { return new(openAIAssistants) }

func isOpenAIAssistants(p probe) bool {
	return strings.HasPrefix(p.name, "thread.") || strings.HasPrefix(p.object.Get("object").Str, "thread.")
}

// assistantsMeaning tells which events carry no output, and which is the end. A
// failure is not an end that may pass for a good one.
func assistantsMeaning(name string) meaning {
	switch name {
	case "thread.message.delta", "thread.run.step.delta", "thread.run.failed":
		return mayCarryOutput
	case "done":
		return isEnd
	}
	if strings.HasPrefix(name, "thread.") {
		return carriesNone
	}
	return mayCarryOutput
}

// assistantsObject is what an event carries: the insides of strings, objects
// whole. What is not there is nil.
type assistantsObject struct {
	kind    []byte
	id      []byte
	model   []byte
	status  []byte
	reason  []byte // of incomplete_details
	delta   []byte
	content []byte // of a message
	failed  []byte // last_error
	usage   event.TokenUsage
}

// Decode translates one event.
func (d *openAIAssistants) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	o := assistantsObject{usage: noUsage}
	o.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	switch string(o.kind) {
	case "thread.message.delta":
		d.decodeDelta(o.delta, out)
	case "thread.message":
		if status := string(o.status); status == "completed" || status == "incomplete" {
			d.decodeMessage(o.content, out)
		}
	case "thread.run.step.delta":
		d.decodeStep(o.delta, out)
	case "thread.run":
		o.decodeRun(out)
	}
	return nil
}

func (o *assistantsObject) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "object":
			o.kind = c.Str()
		case "id":
			o.id = c.Str()
		case "model":
			o.model = c.Str()
		case "status":
			o.status = c.Str()
		case "incomplete_details":
			o.reason = c.Field("reason")
		case "delta":
			o.delta = c.Raw()
		case "content":
			o.content = c.Raw()
		case "last_error":
			if raw := c.Raw(); len(raw) > 0 && raw[0] == '{' {
				o.failed = raw
			}
		case "usage":
			o.usage = decodeUsage(c)
		default:
			c.Skip()
		}
	}
}

// decodeRun adds what a run says of itself. A run that requires an action goes
// on in another response.
func (o *assistantsObject) decodeRun(out *Events) {
	out.Identify(o.model, o.id)
	out.Usage(o.usage)
	switch string(o.status) {
	case "failed":
		if o.failed == nil {
			o.failed = []byte(`{"message":"the run has failed"}`)
		}
		out.Fail(sse.Event{Data: o.failed})
	case "incomplete":
		if len(o.reason) > 0 {
			o.status = o.reason
		}
		out.Finish(0, o.status)
	case "completed", "requires_action", "cancelled", "expired":
		out.Finish(0, o.status)
	}
}

// decodeDelta adds the parts of a message's delta.
func (d *openAIAssistants) decodeDelta(delta []byte, out *Events) {
	c := json.MakeCursor(delta)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		if string(c.Key()) == "content" {
			eachMessagePart(&c, func(text, refusal []byte) {
				d.said.add(out.Delta(event.Text, 0, text))
				d.declined.add(out.Delta(event.Refusal, 0, refusal))
			})
		} else {
			c.Skip()
		}
	}
}

// decodeMessage adds what was not streamed of a message that is complete.
func (d *openAIAssistants) decodeMessage(content []byte, out *Events) {
	said, declined := repetition{streamed: d.said}, repetition{streamed: d.declined}
	c := json.MakeCursor(content)
	if content != nil {
		eachMessagePart(&c, func(text, refusal []byte) {
			out.Delta(event.Text, 0, said.rest(text))
			out.Delta(event.Refusal, 0, declined.rest(refusal))
		})
	}
	d.said, d.declined = spoken{}, spoken{}
}

// eachMessagePart calls visit for the parts of a message's content.
func eachMessagePart(c *json.Cursor, visit func(text, refusal []byte)) {
	for ok := c.Enter('['); ok; ok = c.More('[') {
		var text, refusal []byte
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "text":
				text = c.Field("value")
			case "refusal":
				refusal = c.Str()
			default:
				c.Skip()
			}
		}
		visit(text, refusal)
	}
}

// decodeStep adds the tool calls of a step's delta that are functions. The
// others are tools that OpenAI runs itself.
func (d *openAIAssistants) decodeStep(delta []byte, out *Events) {
	c := json.MakeCursor(delta)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		if string(c.Key()) != "step_details" {
			c.Skip()
			continue
		}
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			if string(c.Key()) != "tool_calls" {
				c.Skip()
				continue
			}
			for ok := c.Enter('['); ok; ok = c.More('[') {
				d.decodeCall(&c, out)
			}
		}
	}
}

func (d *openAIAssistants) decodeCall(c *json.Cursor, out *Events) {
	var f chatFragment
	isFunction := false
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "index":
			f.index = c.Count()
		case "id":
			f.id = c.Str()
		case "function":
			isFunction = true
			f.readFunction(c)
		default:
			c.Skip()
		}
	}
	if !isFunction {
		return
	}
	if len(f.id) > 0 { // every step counts from 0
		call := d.calls.open(toolCall{index: f.index})
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(f.id), Name: word(f.name)}, f.args)
	} else if call := d.calls.find(f.index); call != nil {
		out.Tool(0, call.canonical, f.args)
	}
}

var _ Decoder = (*openAIAssistants)(nil)
