package provider

import (
	"sync"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// Events collects canonical events. Its memory is borrowed from a pool between
// Reset and Release: of many streams only those that read at this moment have
// some.
//
// All texts are copied: those that a splitter hands out are overwritten by the
// next event of the same piece.
type Events struct {
	*eventMemory // nil after Release

	// The first that the provider named; they outlast Reset and Release.
	model string
	id    string
}

// eventMemory is what a list of events is made of.
type eventMemory struct {
	list []event.Event
	text []byte // what the Text of the events in list is part of
}

// How much memory goes back to the pool. A read of 32 KiB, the largest that
// reverse_proxy makes, holds about a hundred events of OpenAI's.
const (
	maxKeptEvents = 256
	maxKeptText   = 32 << 10 // bytes
)

var eventMemories = sync.Pool{New: func() any { return new(eventMemory) }}

// Reset drops all events. Their texts are overwritten by those to come.
func (e *Events) Reset() {
	if e.eventMemory == nil {
		e.eventMemory = eventMemories.Get().(*eventMemory) //nolint:forcetypeassert // nothing else is in the pool
		return
	}
	e.list = e.list[:0]
	e.text = e.text[:0]
}

// Release drops all events and gives their memory back.
func (e *Events) Release() {
	m := e.eventMemory
	e.eventMemory = nil
	if m == nil || cap(m.list) > maxKeptEvents || cap(m.text) > maxKeptText {
		return
	}
	clear(m.list) // what the events point to is not kept alive
	m.list, m.text = m.list[:0], m.text[:0]
	eventMemories.Put(m)
}

// List returns the events. They are valid until Reset and Release.
func (e *Events) List() []event.Event { return e.list }

// Delta adds a piece of Text, Reasoning or Refusal. raw is the inside of a
// JSON string as it was sent; where it is empty, nothing is added.
func (e *Events) Delta(kind event.Kind, choice int, raw []byte) {
	if len(raw) > 0 {
		e.list = append(e.list, event.Event{Kind: kind, Choice: choice, Text: e.keep(raw)})
	}
}

// arguments is a fragment of the JSON text of a tool call's arguments: the
// inside of a string as it was sent, a whole object as it was sent, or plain
// text.
type arguments struct {
	text   []byte
	object []byte
	plain  []byte
}

func (a arguments) empty() bool { return len(a.text) == 0 && len(a.object) == 0 && len(a.plain) == 0 }

// OpenTool adds the fragment that opens a tool call.
func (e *Events) OpenTool(choice int, tool event.Tool, args arguments) {
	e.list = append(e.list, event.Event{Kind: event.ToolCall, Choice: choice, Tool: tool, Text: e.keepArguments(args)})
}

// Tool adds a further fragment of the tool call with this index; where args is
// empty, nothing is added.
func (e *Events) Tool(choice, index int, args arguments) {
	if !args.empty() {
		e.OpenTool(choice, event.Tool{Index: index}, args)
	}
}

// Open tells of a choice that has begun, so that a body that ends before it
// has finished is known for cut off. It is a Finish without a reason.
func (e *Events) Open(choice int) {
	e.list = append(e.list, event.Event{Kind: event.Finish, Choice: choice})
}

// Finish tells that a choice has ended. raw is the inside of the JSON string
// with the provider's reason; where it is empty, nothing is added.
func (e *Events) Finish(choice int, raw []byte) {
	if len(raw) > 0 {
		e.list = append(e.list, event.Event{Kind: event.Finish, Choice: choice, Finish: unquote(raw)})
	}
}

// Block tells that a choice has ended because the prompt, or what came of it,
// was blocked. raw is the inside of the JSON string with the provider's reason;
// where it is empty, nothing is added.
func (e *Events) Block(choice int, raw []byte) {
	if len(raw) > 0 {
		e.list = append(e.list, event.Event{Kind: event.Finish, Choice: choice, Finish: unquote(raw), Blocked: true})
	}
}

// Usage adds token counts, if there is one.
func (e *Events) Usage(usage event.TokenUsage) {
	if usage != noUsage {
		e.list = append(e.list, event.Event{Kind: event.Usage, Usage: usage})
	}
}

// End tells that this was the provider's last event.
func (e *Events) End() { e.list = append(e.list, event.Event{Kind: event.End}) }

// Fail adds the error that an event reports.
func (e *Events) Fail(ev sse.Event) {
	e.list = append(e.list, event.Event{Kind: event.Failed, Err: upstreamError(ev)})
}

// Identify takes the names of the model and of the response from the insides
// of JSON strings. The first of each that is not empty counts: some relays
// change them with every event.
func (e *Events) Identify(model, id []byte) {
	if e.model == "" && len(model) > 0 {
		e.model = unquote(model)
	}
	if e.id == "" && len(id) > 0 {
		e.id = unquote(id)
	}
}

// keep copies raw as escaped text.
func (e *Events) keep(raw []byte) []byte {
	start := len(e.text)
	text, grown := json.Clean(e.text, view(raw))
	if len(grown) == start { // it is raw's own memory
		grown = append(grown, text...)
	}
	e.text = grown
	return grown[start:len(grown):len(grown)]
}

// keepArguments returns a fragment of arguments as escaped text.
func (e *Events) keepArguments(args arguments) []byte {
	plain := args.plain
	switch {
	case len(args.object) > 0:
		plain = compact(view(args.object))
	case len(plain) == 0:
		return e.keep(args.text)
	}
	start := len(e.text)
	e.text = json.Append(e.text, view(plain))
	return e.text[start:len(e.text):len(e.text)]
}
