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
// before May 2026 called the steps contents, and sent tool calls whole. An
// interaction that is completed may repeat its steps, then called outputs.
type geminiInteractions struct {
	calls   toolCalls // for the client, by index of the step
	said    spoken
	thought spoken
	usage   apartCounts
	begun   bool
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
	var s interactionsStep
	s.read(step)
	args := s.args
	switch string(s.kind) {
	case "text", "model_output":
		s.eachText(func(text []byte) { d.said.add(out.Delta(event.Text, 0, text)) })
	case "thought", "thought_summary":
		s.eachText(func(text []byte) { d.thought.add(out.Delta(event.Reasoning, 0, text)) })
	case "function_call":
		if isStart && !hasMembers(args.object) {
			args = arguments{} // they come in parts
		}
		d.openCall(&s, args, index, out)
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

// openCall adds the start of a tool call.
func (d *geminiInteractions) openCall(s *interactionsStep, args arguments, index int64, out *Events) {
	call := d.calls.open(toolCall{index: index, whole: !args.empty()})
	out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(s.id), Name: word(s.name)}, args)
}

// interactionsStep is a step, or a delta of it: the insides of strings, other
// values whole. What is not there is nil.
type interactionsStep struct {
	kind, text, id, name []byte
	content              []byte // a text, or a list of texts
	args                 arguments
}

func (s *interactionsStep) read(step []byte) {
	c := json.MakeCursor(step)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			s.kind = c.Str()
		case "text":
			s.text = c.Str()
		case "content", "summary":
			s.content = c.Raw()
		case "id":
			s.id = c.Str()
		case "name":
			s.name = c.Str()
		case "arguments":
			if c.Peek() == '{' {
				s.args.object = c.Raw()
			} else {
				s.args.text = c.Str()
			}
		default:
			c.Skip()
		}
	}
}

// eachText calls visit for the texts of a step.
func (s *interactionsStep) eachText(visit func(text []byte)) {
	visit(s.text)
	c := json.MakeCursor(s.content)
	if c.Peek() == '{' {
		visit(c.Field("text"))
		return
	}
	for ok := c.Enter('['); ok; ok = c.More('[') {
		visit(c.Field("text"))
	}
}

// repeatSteps adds what was not streamed of the steps of an interaction that is
// completed, given whole.
func (d *geminiInteractions) repeatSteps(steps []byte, out *Events) {
	said, thought := repetition{streamed: d.said}, repetition{streamed: d.thought}
	streamed := d.calls.opened > 0
	c := json.MakeCursor(steps)
	for ok := steps != nil && c.Enter('['); ok; ok = c.More('[') {
		var s interactionsStep
		s.read(c.Raw())
		switch string(s.kind) {
		case "text", "model_output":
			s.eachText(func(text []byte) { out.Delta(event.Text, 0, said.rest(text)) })
		case "thought":
			s.eachText(func(text []byte) { out.Delta(event.Reasoning, 0, thought.rest(text)) })
		case "function_call":
			if !streamed {
				d.openCall(&s, s.args, -1, out)
			}
		}
	}
}

// decodeInteraction reads the interaction that an event carries.
func (d *geminiInteractions) decodeInteraction(interaction []byte, isEnd bool, out *Events) {
	var id, model, status, steps []byte
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
		case "steps", "outputs":
			steps = c.Raw()
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
	d.repeatSteps(steps, out)
	switch {
	case failed:
		out.Fail(sse.Event{Data: interaction})
	default:
		out.Finish(0, status)
		out.End()
	}
}

var _ Decoder = (*geminiInteractions)(nil)
