package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// geminiInteractions decodes the streams of Gemini's Interactions:
// https://ai.google.dev/gemini-api/docs/interactions/streaming
//
// An interaction is made of steps: thoughts, model output, and tool calls, of
// which those of type function_call are for the client. Revisions of the API
// before May 2026 called the steps contents, and sent tool calls whole.
type geminiInteractions struct {
	calls toolCalls // for the client, by index of the step
	begun bool
}

func newGeminiInteractions() Decoder { return new(geminiInteractions) }

func isGeminiInteractions(p probe) bool {
	kind, _, _ := strings.Cut(p.object.Get("event_type").Str, ".")
	return kind == "interaction" || kind == "step" || kind == "content"
}

// interactionsMeaning tells which events carry no output, and which is the end.
func interactionsMeaning(name string) meaning {
	switch name {
	case "interaction.created", "interaction.start", "interaction.status_update", "step.stop", "content.stop":
		return carriesNone
	case "interaction.completed", "interaction.complete":
		return isEnd
	}
	return mayCarryOutput
}

// interactionsEvent is what an event carries: the insides of strings, objects
// whole. What is not there is nil.
type interactionsEvent struct {
	kind        []byte
	index       int64
	step        []byte
	delta       []byte
	interaction []byte
	failed      bool
}

// Decode translates one event.
func (d *geminiInteractions) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	e := interactionsEvent{kind: ev.Name}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "event_type":
			e.kind = c.str()
		case "index":
			e.index = c.count()
		case "step", "content":
			e.step = c.raw()
		case "delta":
			e.delta = c.raw()
		case "interaction":
			e.interaction = c.raw()
		case "error":
			e.failed = c.isError()
		default:
			c.skip()
		}
	}
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
	switch string(e.kind) {
	case "step.delta", "content.delta":
		d.decodeStep(e.delta, e.index, false, out)
	case "step.start", "content.start":
		d.decodeStep(e.step, e.index, true, out)
	case "interaction.completed", "interaction.complete":
		decodeInteraction(e.interaction, true, out)
	default:
		decodeInteraction(e.interaction, false, out)
	}
	return nil
}

// decodeStep reads the start of a step, or a delta of it. They have the same
// members under the same names, but for the type of a part of the arguments.
func (d *geminiInteractions) decodeStep(step []byte, index int64, isStart bool, out *Events) {
	var kind, text, id, name, content []byte
	var args arguments
	c := cursor{data: step}
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			kind = c.str()
		case "text":
			text = c.str()
		case "content", "summary":
			content = c.raw()
		case "id":
			id = c.str()
		case "name":
			name = c.str()
		case "arguments":
			if c.peek() == '{' {
				args.object = c.raw()
			} else {
				args.text = c.str()
			}
		default:
			c.skip()
		}
	}
	switch string(kind) {
	case "text":
		out.Delta(event.Text, 0, text)
	case "model_output":
		emitContents(event.Text, content, out)
	case "thought", "thought_summary":
		out.Delta(event.Reasoning, 0, text)
		emitContents(event.Reasoning, content, out)
	case "function_call":
		if isStart && !hasMembers(args.object) {
			args = arguments{} // they come in parts
		}
		call := d.calls.open(toolCall{index: index, whole: !args.empty()})
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: unquote(id), Name: unquote(name)}, args)
	case "arguments_delta":
		if call := d.calls.find(index); call != nil && !call.whole {
			out.Tool(0, call.canonical, args)
		}
	}
}

// emitContents adds the texts of a list of contents, or of one.
func emitContents(kind event.Kind, contents []byte, out *Events) {
	c := cursor{data: contents}
	if c.peek() == '{' {
		out.Delta(kind, 0, c.field("text"))
		return
	}
	for ok := c.enter('['); ok; ok = c.more('[') {
		out.Delta(kind, 0, c.field("text"))
	}
}

// decodeInteraction reads the interaction that an event carries.
func decodeInteraction(interaction []byte, isEnd bool, out *Events) {
	var id, model, status []byte
	usage := noUsage
	failed := false
	c := cursor{data: interaction}
	for ok := interaction != nil && c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "id":
			id = c.str()
		case "model":
			model = c.str()
		case "status":
			status = c.str()
		case "usage":
			usage = decodeUsage(&c, "total_input_tokens", "total_output_tokens")
		case "error":
			failed = c.isError()
		default:
			c.skip()
		}
	}
	out.Identify(model, id)
	if !isEnd {
		return
	}
	out.Usage(usage)
	switch {
	case failed:
		out.Fail(sse.Event{Data: interaction})
	case string(status) == "failed":
		out.Fail(sse.Event{Data: []byte(`{"message":"the interaction has failed"}`)})
	default:
		out.Finish(0, status)
		out.End()
	}
}

var _ Decoder = (*geminiInteractions)(nil)
