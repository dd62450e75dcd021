package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
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
	usage apartCounts
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
}

// Decode translates one event.
func (d *geminiInteractions) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := interactionsEvent{kind: ev.Name}
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "event_type":
			e.kind = c.Str()
		case "index":
			e.index = c.Count()
		case "step", "content":
			e.step = c.Raw()
		case "delta":
			e.delta = c.Raw()
		case "interaction":
			e.interaction = c.Raw()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	switch string(e.kind) {
	case "step.delta", "content.delta":
		d.decodeStep(e.delta, e.index, false, out)
	case "step.start", "content.start":
		d.decodeStep(e.step, e.index, true, out)
	case "interaction.completed", "interaction.complete":
		d.decodeInteraction(e.interaction, true, out)
	default:
		d.decodeInteraction(e.interaction, false, out)
	}
	return nil
}

// decodeStep reads the start of a step, or a delta of it. They have the same
// members under the same names, but for the type of a part of the arguments.
func (d *geminiInteractions) decodeStep(step []byte, index int64, isStart bool, out *Events) {
	var kind, text, id, name, content []byte
	var args arguments
	c := json.MakeCursor(step)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			kind = c.Str()
		case "text":
			text = c.Str()
		case "content", "summary":
			content = c.Raw()
		case "id":
			id = c.Str()
		case "name":
			name = c.Str()
		case "arguments":
			if c.Peek() == '{' {
				args.object = c.Raw()
			} else {
				args.text = c.Str()
			}
		default:
			c.Skip()
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
		out.OpenTool(0, event.Tool{Index: call.canonical, ID: json.Unquote(id), Name: json.Unquote(name)}, args)
	case "arguments_delta":
		if call := d.calls.find(index); call != nil && !call.whole {
			out.Tool(0, call.canonical, args)
		} else if call == nil {
			out.Silent()
		}
	default: // of a tool that the provider runs, an image, a signature
		out.Silent()
	}
}

// emitContents adds the texts of a list of contents, or of one.
func emitContents(kind event.Kind, contents []byte, out *Events) {
	c := json.MakeCursor(contents)
	if c.Peek() == '{' {
		out.Delta(kind, 0, c.Field("text"))
		return
	}
	for ok := c.Enter('['); ok; ok = c.More('[') {
		out.Delta(kind, 0, c.Field("text"))
	}
}

// decodeInteraction reads the interaction that an event carries.
func (d *geminiInteractions) decodeInteraction(interaction []byte, isEnd bool, out *Events) {
	var id, model, status []byte
	usage := noUsage
	failed := false
	c := json.MakeCursor(interaction)
	for ok := interaction != nil && c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "id":
			id = c.Str()
		case "model":
			model = c.Str()
		case "status":
			status = c.Str()
		case "usage":
			usage = d.usage.read(&c)
		case "error":
			failed = isError(c.Raw())
		default:
			c.Skip()
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
	default:
		out.Finish(0, status)
		out.End()
	}
}

var _ Decoder = (*geminiInteractions)(nil)
