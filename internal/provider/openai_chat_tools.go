package provider

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
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
	args      json.Progress
}

// chatFragment is a fragment of a tool call as it was sent.
type chatFragment struct {
	index  int64
	placed bool   // the index is the place in the list, for want of another
	id     []byte // the insides of strings
	name   []byte
	args   arguments
}

// emitCalls adds the fragments of tool_calls.
func (ch *chatChoice) emitCalls(calls []byte, choice int, out *Events) {
	c := json.MakeCursor(calls)
	place := int64(-1)
	for ok := c.Open('['); ok; ok = c.More('[') {
		place++
		if c.Peek() != '{' {
			c.Skip()
			continue
		}
		f := chatFragment{index: noIndex}
		for ok := c.Open('{'); ok; ok = c.More('{') {
			key := c.Key()
			switch string(key) {
			case "index":
				f.index = c.Count() // noIndex where there is none
			case "id":
				f.id = c.Str()
			case "function", "custom":
				f.readFunction(&c)
			default: // Cloudflare has the function's members here
				f.readMember(key, &c)
			}
		}
		if f.index == noIndex && len(f.id) == 0 {
			f.index, f.placed = place, true
		}
		ch.emit(&f, choice, out)
	}
}

// emitFunctionCall adds a fragment of function_call, of which a choice has one
// at most.
func (ch *chatChoice) emitFunctionCall(call []byte, choice int, out *Events) {
	f := chatFragment{index: functionIndex}
	f.readFunction(json.NewCursor(call))
	ch.emit(&f, choice, out)
}

// readFunction reads the name and the arguments of a function, or of a custom
// tool, whose input is free text.
func (f *chatFragment) readFunction(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		f.readMember(c.Key(), c)
	}
}

// readMember reads a member of a function.
func (f *chatFragment) readMember(key []byte, c *json.Cursor) {
	switch string(key) {
	case "name":
		f.name = c.Str()
	case "arguments", "input":
		if c.Peek() == '{' {
			f.args.object = c.Raw()
		} else {
			f.args.text = c.Str()
		}
	default:
		c.Skip()
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
		call.args.Feed(out.Tool(choice, call.canonical, f.args))
		return
	}
	if call.id == "" {
		call.id = callID(f.id)
	}
	call.name = word(f.name)
	if call.name == "" && f.args.empty() {
		return
	}
	call.opened = true
	call.canonical = ch.opened
	ch.opened++
	call.args.Feed(out.OpenTool(choice, event.Tool{Index: call.canonical, ID: call.id, Name: call.name}, f.args))
}

// find returns the call that a fragment goes on with, nil where it begins a
// new one.
//
// By OpenAI's rules the index alone tells. But some servers leave it out, and
// some parsers of vLLM give every call index 0: then an id that differs, or
// without ids a name that does, begins a new call. Fragments repeat neither or
// repeat both, or have "" for them. And some servers change the id of a call:
// without a name, or with the same one while the arguments are not whole, it is
// the same call.
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
		if len(f.id) == 0 || isCallID(f.id, call.id) {
			if len(f.id) > 0 {
				return call
			}
			break
		}
	}
	switch {
	case latest == nil && f.placed && len(f.name) == 0:
		return ch.latest(noIndex) // its call may have had an id
	case latest == nil:
		return nil
	case len(f.id) > 0:
		if f.index == noIndex || !latest.mayGoOn(f) {
			return nil
		}
	case len(f.name) > 0:
		if latest.name != "" && !isWord(f.name, latest.name) || f.placed && (latest.args.Whole() || latest.args.Free()) {
			return nil
		}
	}
	return latest
}

// latest returns the last call with this index, nil where there is none.
func (ch *chatChoice) latest(index int64) *chatCall {
	for i := len(ch.calls) - 1; i >= 0; i-- {
		if ch.calls[i].index == index {
			return &ch.calls[i]
		}
	}
	return nil
}

// mayGoOn reports whether a fragment with another id may belong to the call all
// the same.
func (call *chatCall) mayGoOn(f *chatFragment) bool {
	switch {
	case len(f.name) == 0:
		return !call.args.Whole()
	case call.id == "":
		return call.name == ""
	}
	return isWord(f.name, call.name) && !call.args.Whole()
}
