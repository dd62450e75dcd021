package provider

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

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

	// only says that the request asked for one choice; see Choice.
	only bool

	// Since the last Reset.
	silent   int  // how many outputs there were that are no events
	tooLarge bool // an output was left out of an event that is too large
	hasError bool // the last event has a member error

	halves []half // of characters whose other half is to come

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
	e.silent, e.tooLarge = 0, false
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

// Delta adds a piece of Text, Reasoning or Refusal and returns it as escaped
// text. raw is the inside of a JSON string as it was sent; where it is empty,
// nothing is added.
func (e *Events) Delta(kind event.Kind, choice int, raw []byte) []byte {
	if len(raw) == 0 { // small enough to be inlined: most calls end here
		return nil
	}
	return e.delta(kind, choice, raw)
}

// delta is Delta for a piece that is not empty.
func (e *Events) delta(kind event.Kind, choice int, raw []byte) []byte {
	text := e.keepText(speaker{kind, choice, 0}, raw)
	if len(text) > 0 {
		e.list = append(e.list, event.Event{Kind: kind, Choice: choice, Text: text})
	}
	return text
}

// whole reports whether the data of an event, which c has read, was one valid
// value.
func (e *Events) whole(c *json.Cursor) bool {
	e.hasError = c.HasError()
	return c.End()
}

// Silent tells of an output of the model that is no event: arguments and code
// of a tool that the provider runs, its progress, an image, a signature.
func (e *Events) Silent() { e.silent++ }

// Choice returns the index of a choice for the one that the provider gives it,
// which may be missing: -1. Where the request asked for one choice, an only one
// is choice 0: some servers count tokens there. alone says that the provider
// has sent no other beside it. An index that is too large to be one is none.
func (e *Events) Choice(index int64, alone bool) (choice int, ok bool) {
	if index <= 0 || alone && (e.only || index >= maxChoices) {
		return 0, true
	}
	return int(index), index < maxChoices
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

// OpenTool adds the fragment that opens a tool call. One that has neither an id
// nor a name is given an id, so that every opening is known for one. It returns
// the arguments as escaped text.
func (e *Events) OpenTool(choice int, tool event.Tool, args arguments) []byte {
	if tool.ID == "" && tool.Name == "" {
		tool.ID = "call_" + strconv.Itoa(tool.Index)
	}
	text := e.keepArguments(choice, tool.Index, args)
	e.list = append(e.list, event.Event{Kind: event.ToolCall, Choice: choice, Tool: tool, Text: text})
	return text
}

// Tool adds a further fragment of the tool call with this index, and returns it
// as escaped text; where args is empty, nothing is added.
func (e *Events) Tool(choice, index int, args arguments) []byte {
	if args.empty() {
		return nil
	}
	text := e.keepArguments(choice, index, args)
	if len(text) > 0 {
		e.list = append(e.list, event.Event{Kind: event.ToolCall, Choice: choice, Tool: event.Tool{Index: index}, Text: text})
	}
	return text
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
		e.finish(choice, raw, false)
	}
}

func (e *Events) finish(choice int, raw []byte, blocked bool) {
	e.list = append(e.list, event.Event{Kind: event.Finish, Choice: choice, Finish: word(raw), Blocked: blocked})
}

// Block tells that a choice has ended because the prompt, or what came of it,
// was blocked. raw is the inside of the JSON string with the provider's reason;
// where it is empty, nothing is added.
func (e *Events) Block(choice int, raw []byte) {
	if len(raw) > 0 {
		e.finish(choice, raw, true)
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
		e.model = word(model)
	}
	if e.id == "" && len(id) > 0 {
		e.id = word(id)
	}
}

// maxWord is how much of a word of a backend's is kept, in bytes: a name, an
// id, a finish reason.
const maxWord = 256

// word returns what the inside of a JSON string stands for, cut to maxWord.
func word(raw []byte) string { return cut(wordOf(raw), maxWord) }

// wordOf returns what the inside of a JSON string stands for, of a longer one
// than maxWord only so much that this shows.
func wordOf(raw []byte) string {
	// An escape has at most six bytes for one of the text.
	return json.Unquote(raw[:min(len(raw), 6*(maxWord+1))])
}

// cut returns text, which is valid UTF-8, cut to at most n bytes between two
// characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) // what is cut off is not held
}

// keepText copies raw, a piece of what a speaker says, as escaped text.
func (e *Events) keepText(from speaker, raw []byte) []byte {
	if raw[0] < ' ' && json.IsElided(raw) {
		e.tooLarge = true
		return nil
	}
	if len(e.halves) > 0 {
		raw = e.joinHalf(from, raw)
	}
	if n := len(raw) - halfLen; n >= 0 && raw[n] == '\\' && isHighHalf(raw) && len(e.halves) < maxHalves {
		e.halves = append(e.halves, half{from, string(raw[n:])})
		e.silent++
		if raw = raw[:n]; n == 0 {
			return nil
		}
	}
	return e.keep(raw)
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
func (e *Events) keepArguments(choice, index int, args arguments) []byte {
	plain := args.plain
	switch {
	case len(args.object) > 0:
		var ok bool
		if plain, ok = json.AppendCompact(nil, args.object); !ok {
			e.tooLarge = true // only a part that was left out can be amiss
			return nil
		}
	case len(plain) == 0 && len(args.text) == 0:
		return nil
	case len(plain) == 0:
		return e.keepText(speaker{event.ToolCall, choice, index}, args.text)
	}
	start := len(e.text)
	e.text = json.Append(e.text, view(plain))
	return e.text[start:len(e.text):len(e.text)]
}
