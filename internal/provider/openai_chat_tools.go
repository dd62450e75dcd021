package provider

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// maxCalls is how many tool calls of a choice are remembered: the last ones,
// since fragments of earlier ones do not come any more.
const maxCalls = 256

// What takes the place of a tool call's index where there is none.
const (
	noIndex       = -1
	functionIndex = -2 // of the legacy function_call
)

// chatCall is one tool call of a choice.
type chatCall struct {
	index     int64 // the provider's
	id        string
	name      string
	canonical int // the index under which it was passed on
	opened    bool
}

// chatFragment is a fragment of a tool call as it was sent.
type chatFragment struct {
	index int64
	id    []byte // the insides of strings
	name  []byte
	args  arguments
}

// emitCalls adds the fragments of tool_calls.
func (ch *chatChoice) emitCalls(calls []byte, choice int, out *Events) {
	c := cursor{data: calls}
	for ok := c.open('['); ok; ok = c.more('[') {
		if c.peek() != '{' {
			c.skip()
			continue
		}
		f := chatFragment{index: noIndex}
		for ok := c.open('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "index":
				f.index = c.count() // noIndex where there is none
			case "id":
				f.id = c.str()
			case "function":
				f.readFunction(&c)
			default:
				c.skip()
			}
		}
		ch.emit(&f, choice, out)
	}
}

// emitFunctionCall adds a fragment of function_call, of which a choice has one
// at most.
func (ch *chatChoice) emitFunctionCall(call []byte, choice int, out *Events) {
	f := chatFragment{index: functionIndex}
	f.readFunction(&cursor{data: call})
	ch.emit(&f, choice, out)
}

// readFunction reads the name and the arguments.
func (f *chatFragment) readFunction(c *cursor) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "name":
			f.name = c.str()
		case "arguments":
			if c.peek() == '{' {
				f.args.object = c.raw()
			} else {
				f.args.text = c.str()
			}
		default:
			c.skip()
		}
	}
}

// emit adds a fragment to the call that it belongs to. A call is passed on as
// soon as its name is known, or its first argument where the name is late.
func (ch *chatChoice) emit(f *chatFragment, choice int, out *Events) {
	call := ch.find(f)
	if call == nil {
		if len(ch.calls) == maxCalls {
			ch.calls = slices.Delete(ch.calls, 0, maxCalls/2)
		}
		ch.calls = append(ch.calls, chatCall{index: f.index})
		call = &ch.calls[len(ch.calls)-1]
	}
	if call.opened {
		out.Tool(choice, call.canonical, f.args)
		return
	}
	if call.id == "" {
		call.id = unquote(f.id)
	}
	call.name = unquote(f.name)
	if call.name == "" && f.args.empty() {
		return
	}
	call.opened = true
	call.canonical = ch.opened
	ch.opened++
	out.OpenTool(choice, event.Tool{Index: call.canonical, ID: call.id, Name: call.name}, f.args)
}

// find returns the call that a fragment goes on with, nil where it begins a
// new one.
//
// By OpenAI's rules the index alone tells. But some servers leave it out, and
// some parsers of vLLM give every call index 0: then an id that differs, or
// without ids a name that does, begins a new call. Fragments repeat neither or
// repeat both, or have "" for them.
func (ch *chatChoice) find(f *chatFragment) *chatCall {
	var latest *chatCall // the last one with the same index
	for i := len(ch.calls) - 1; i >= 0; i-- {
		call := &ch.calls[i]
		if f.index != noIndex && f.index != call.index {
			continue
		}
		if latest == nil {
			latest = call
		}
		if len(f.id) == 0 || standsFor(f.id, call.id) {
			if len(f.id) > 0 {
				return call
			}
			break
		}
	}
	switch {
	case latest == nil:
		return nil
	case len(f.id) > 0:
		// A call that began without an id may be given one later.
		if latest.id != "" || latest.name != "" && len(f.name) > 0 || f.index == noIndex {
			return nil
		}
	case len(f.name) > 0:
		if f.index == noIndex || latest.name != "" && !standsFor(f.name, latest.name) {
			return nil
		}
	}
	return latest
}
