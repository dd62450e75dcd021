package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// openAIResponses decodes the streams of OpenAI's Responses:
// https://platform.openai.com/docs/api-reference/responses-streaming
//
// The same text is sent five times, in deltas and then whole with every level
// that ends. What the deltas had is not read again, but some servers leave the
// deltas out, of a short answer or of everything.
//
// OpenRouter and Bedrock send no event names, OpenRouter adds [DONE], and
// llama.cpp leaves out output_index.
type openAIResponses struct {
	calls toolCalls // by output_index
	parts []responsesPart
	said  [trackCount]spoken
	last  partKey // of the summary part that was streamed last
	begun bool
}

// track is one of the texts that a response is made of.
type track uint8

const (
	trackText track = iota
	trackRefusal
	trackThought
	trackSummary
	trackCount
)

// kind returns the kind of output that a track is.
func (t track) kind() event.Kind {
	switch t {
	case trackRefusal:
		return event.Refusal
	case trackThought, trackSummary:
		return event.Reasoning
	case trackText, trackCount:
	}
	return event.Text
}

// partKey names a part of an item: a text, or a part of a reasoning summary.
type partKey struct {
	track  track
	output int64
	part   int64
}

// responsesPart is what was streamed of a part.
type responsesPart struct {
	key  partKey
	said spoken
}

// maxParts is how many parts are remembered: the last ones, since a part ends
// soon after its last delta.
const maxParts = 64

func newOpenAIResponses() Decoder { return new(openAIResponses) }

func isOpenAIResponses(p probe) bool { return strings.HasPrefix(p.typ(), "response.") }

// responsesMeaning tells which events carry no output, and which are the end.
func responsesMeaning(name string) meaning {
	switch name {
	case "response.created", "response.in_progress", "response.queued", "keepalive",
		"response.content_part.added", "response.content_part.done", "response.output_text.done",
		"response.output_text.annotation.added", "response.refusal.done",
		"response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
		"response.reasoning_summary_text.done", "response.reasoning_part.added", "response.reasoning_part.done",
		"response.reasoning_text.done":
		return carriesNone
	case "response.completed", "response.cancelled":
		return isEnd
	case "response.incomplete":
		return isIncomplete
	case "response.failed":
		return isFailure
	}
	for _, tool := range []string{"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_"} {
		if strings.HasPrefix(name, "response."+tool) {
			return carriesNone
		}
	}
	return mayCarryOutput
}

// responsesEvent is what an event carries: the insides of strings, objects
// whole. What is not there is nil.
type responsesEvent struct {
	kind     []byte
	delta    []byte
	text     []byte // of a part that is done, whole
	item     []byte
	response []byte
	args     []byte // of a tool call, whole
	itemID   []byte
	output   int64
	part     int64
}

// Decode translates one event.
func (d *openAIResponses) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := responsesEvent{kind: ev.Name, output: -1, part: -1}
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	switch string(e.kind) {
	case "response.output_text.delta":
		d.say(trackText, &e, out)
	case "response.reasoning_text.delta":
		d.say(trackThought, &e, out)
	case "response.reasoning_summary_text.delta":
		d.say(trackSummary, &e, out)
	case "response.refusal.delta":
		d.say(trackRefusal, &e, out)
	case "response.output_text.done":
		d.repeat(partKey{trackText, e.output, e.part}, e.text, out)
	case "response.reasoning_text.done":
		d.repeat(partKey{trackThought, e.output, e.part}, e.text, out)
	case "response.reasoning_summary_text.done":
		d.repeat(partKey{trackSummary, e.output, e.part}, e.text, out)
	case "response.refusal.done":
		d.repeat(partKey{trackRefusal, e.output, e.part}, e.text, out)
	default:
		d.decodeOther(&e, ev, out)
	}
	return nil
}

// decodeOther translates an event that has no text.
func (d *openAIResponses) decodeOther(e *responsesEvent, ev sse.Event, out *Events) {
	switch kind := string(e.kind); kind {
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if call := d.find(e.output, e.itemID); call != nil {
			call.spoke = true
			out.Tool(0, call.canonical, arguments{text: e.delta})
		}
	case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
		d.complete(d.find(e.output, e.itemID), arguments{text: e.args}, out)
	case "response.output_item.added", "response.output_item.done":
		d.decodeItem(e.item, e.output, kind == "response.output_item.done", out)
	case "response.completed", "response.done", "response.incomplete", "response.cancelled", "response.failed":
		d.decodeEnd(e, ev, out)
	default:
		if e.response != nil { // created, queued, in_progress
			var r responsesObject
			r.read(e.response)
			out.Identify(r.model, r.id)
		} else if isProgress(kind) {
			out.Silent()
		}
	}
}

// isProgress reports whether an event that carries nothing is model output all
// the same: code and arguments of a tool that the provider runs, how far it has
// come, a citation.
func isProgress(kind string) bool {
	return strings.Contains(kind, "_call") || strings.HasPrefix(kind, "response.mcp_") ||
		strings.HasSuffix(kind, ".delta") || strings.HasSuffix(kind, "annotation.added")
}

func (e *responsesEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			e.kind = c.Str()
		case "delta":
			e.delta = c.Str()
		case "text", "refusal":
			e.text = c.Str()
		case "item":
			e.item = c.Raw()
		case "response":
			e.response = c.Raw()
		case "arguments", "input":
			e.args = c.Str()
		case "item_id":
			e.itemID = c.Str()
		case "output_index":
			e.output = c.Count()
		case "content_index", "summary_index":
			e.part = c.Count()
		default:
			c.Skip()
		}
	}
}

// say adds a delta.
func (d *openAIResponses) say(t track, e *responsesEvent, out *Events) {
	d.put(partKey{t, e.output, e.part}, e.delta, out)
}

// put adds a piece of a part. The parts of a summary are paragraphs.
func (d *openAIResponses) put(key partKey, raw []byte, out *Events) {
	if len(raw) == 0 {
		return
	}
	if key.track == trackSummary {
		if key != d.last && d.said[trackSummary].size > 0 {
			out.Delta(event.Reasoning, 0, []byte(`\n\n`))
		}
		d.last = key
	}
	text := out.Delta(key.track.kind(), 0, raw)
	d.said[key.track].add(text)
	d.part(key).said.add(text)
}

// part returns what was streamed of a part.
func (d *openAIResponses) part(key partKey) *responsesPart {
	for i := len(d.parts) - 1; i >= 0; i-- {
		if d.parts[i].key == key {
			return &d.parts[i]
		}
	}
	if len(d.parts) == maxParts {
		d.parts = append(d.parts[:0], d.parts[maxParts/2:]...)
	}
	d.parts = append(d.parts, responsesPart{key: key})
	return &d.parts[len(d.parts)-1]
}

// repeat adds what was not streamed of a part that has ended, given whole. Some
// relays name it otherwise than they did in its deltas.
func (d *openAIResponses) repeat(key partKey, whole []byte, out *Events) {
	if len(whole) == 0 {
		return
	}
	for i := range d.parts {
		if p := &d.parts[i]; p.key.track == key.track && p.said.is(whole) {
			return
		}
	}
	d.put(key, d.part(key).said.rest(whole), out)
}

// responsesItem is an item of the output: the insides of strings, other values
// whole. What is not there is nil.
type responsesItem struct {
	kind, id, callID, name []byte
	args                   []byte // or the input of a custom tool
	content, summary       []byte
	action                 []byte // of a tool of OpenAI's that the client runs
	label                  []byte // of an MCP server
	container              bool   // the tool runs at the provider
}

func (it *responsesItem) read(item []byte) {
	c := json.MakeCursor(item)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			it.kind = c.Str()
		case "id":
			it.id = c.Str()
		case "call_id":
			it.callID = c.Str()
		case "name":
			it.name = c.Str()
		case "arguments", "input":
			it.args = c.Str()
		case "content":
			it.content = c.Raw()
		case "summary":
			it.summary = c.Raw()
		case "action", "operation", "actions":
			if raw := c.Raw(); it.action == nil || !isEmpty(raw) {
				it.action = raw
			}
		case "server_label":
			it.label = c.Raw()
		case "environment":
			it.container = strings.HasPrefix(string(c.Field("type")), "container")
		case "container_id":
			it.container = len(c.Str()) > 0 || it.container
		default:
			c.Skip()
		}
	}
}

// decodeItem opens a tool call when its item is added. When the item is done,
// it makes up for what has not come in events of its own.
func (d *openAIResponses) decodeItem(item []byte, output int64, done bool, out *Events) {
	var it responsesItem
	it.read(item)
	switch kind := string(it.kind); kind {
	case "function_call", "custom_tool_call":
		call := d.open(&it, output, word(it.name), out)
		if done {
			d.complete(call, arguments{text: it.args}, out)
		}
	case "local_shell_call", "apply_patch_call", "computer_call", "shell_call", "mcp_approval_request":
		if it.container || !done {
			out.Silent()
			return
		}
		call := d.open(&it, output, strings.TrimSuffix(kind, "_call"), out)
		d.complete(call, it.ownArguments(), out)
	case "message":
		if done {
			d.repeatParts(trackText, it.content, output, out)
		}
	case "reasoning":
		if done {
			d.repeatParts(trackSummary, it.summary, output, out)
			d.repeatParts(trackThought, it.content, output, out)
		}
	default: // a tool that the provider runs itself
		out.Silent()
	}
}

// ownArguments returns the arguments of a call of one of OpenAI's own tools.
func (it *responsesItem) ownArguments() arguments {
	switch {
	case string(it.kind) == "mcp_approval_request":
		b := append([]byte(`{"name":"`), it.name...)
		b = append(append(b, `","arguments":"`...), it.args...)
		b = append(b, '"')
		if it.label != nil {
			b = append(append(b, `,"server_label":`...), it.label...)
		}
		return arguments{object: append(b, '}')}
	case len(it.action) > 0 && it.action[0] == '[': // arguments are an object
		return arguments{object: append(append([]byte(`{"actions":`), it.action...), '}')}
	}
	return arguments{object: it.action}
}

// open returns the tool call of an item, which it opens where it is new.
func (d *openAIResponses) open(it *responsesItem, output int64, name string, out *Events) *toolCall {
	if call := d.find(output, it.id); call != nil {
		return call
	}
	id := it.ownID()
	call := d.calls.open(toolCall{index: output, item: callID(it.id), id: callID(id)})
	out.OpenTool(0, event.Tool{Index: call.canonical, ID: callID(id), Name: name}, arguments{})
	return call
}

// ownID returns the id by which the client answers a call.
func (it *responsesItem) ownID() []byte {
	if len(it.callID) > 0 {
		return it.callID
	}
	return it.id
}

// complete adds the arguments of a tool call that has come without them.
func (d *openAIResponses) complete(call *toolCall, args arguments, out *Events) {
	if call != nil && !call.spoke && !args.empty() {
		call.spoke = true
		out.Tool(0, call.canonical, args)
	}
}

// find returns the tool call with this index, or where there is none with this
// item; nil where it was not opened. The index goes first, because some relays
// give an item another id with every event.
func (d *openAIResponses) find(output int64, item []byte) *toolCall {
	if output >= 0 {
		if call := d.calls.find(output); call != nil {
			return call
		}
	}
	for i := range d.calls.list {
		call := &d.calls.list[i]
		if len(item) > 0 && isCallID(item, call.item) && (output < 0 || call.index < 0) {
			return call
		}
	}
	return nil
}

// repeatParts adds what was not streamed of the parts of an item.
func (d *openAIResponses) repeatParts(t track, parts []byte, output int64, out *Events) {
	part := int64(0)
	eachPart(t, parts, func(t track, raw []byte) {
		d.repeat(partKey{t, output, part}, raw, out)
		part++
	})
}

// eachPart calls visit for the parts of an item that have text. t is the track
// of those that are no refusals.
func eachPart(t track, parts []byte, visit func(t track, raw []byte)) {
	c := json.MakeCursor(parts)
	for ok := parts != nil && c.Enter('['); ok; ok = c.More('[') {
		var text, refusal []byte
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "text":
				text = c.Str()
			case "refusal":
				refusal = c.Str()
			default:
				c.Skip()
			}
		}
		switch {
		case c.Bad():
		case len(refusal) > 0:
			visit(trackRefusal, refusal)
		default:
			visit(t, text)
		}
	}
}

// responsesObject is the response that an event carries.
type responsesObject struct {
	id, model  []byte
	status     []byte
	reason     []byte // of incomplete_details
	output     []byte
	usage      event.TokenUsage
	hasFailure bool
}

func (r *responsesObject) read(response []byte) {
	r.usage = noUsage
	c := json.MakeCursor(response)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "id":
			r.id = c.Str()
		case "model":
			r.model = c.Str()
		case "status":
			r.status = c.Str()
		case "incomplete_details":
			r.reason = c.Field("reason")
		case "output":
			r.output = c.Raw()
		case "usage":
			r.usage = decodeUsage(&c)
		case "error":
			r.hasFailure = isError(c.Raw())
		default:
			c.Skip()
		}
	}
}

// decodeEnd adds the end of the response, good or bad, and before it what has
// not come by then.
func (d *openAIResponses) decodeEnd(e *responsesEvent, ev sse.Event, out *Events) {
	var r responsesObject
	r.read(e.response)
	out.Identify(r.model, r.id)
	out.Usage(r.usage)
	d.repeatOutput(r.output, out)
	kind := string(e.kind)
	switch {
	case r.hasFailure:
		out.Fail(sse.Event{Data: e.response})
	case kind == "response.failed", string(r.status) == "failed":
		if isBlatant(ev) { // the error is beside the response
			out.Fail(ev)
		} else {
			out.Fail(sse.Event{Data: []byte(`{"message":"the response has failed"}`)})
		}
	default:
		out.Finish(0, r.finish(kind))
		out.End()
	}
}

// finish returns why a response has ended that has not failed: by its details,
// its status, or the event that it came with.
func (r *responsesObject) finish(kind string) []byte {
	switch {
	case len(r.reason) > 0:
		return r.reason
	case kind == "response.incomplete":
		return []byte("incomplete")
	case kind == "response.cancelled":
		return []byte("cancelled")
	}
	return r.status
}

// repeatOutput adds what was not streamed of the whole output.
func (d *openAIResponses) repeatOutput(output []byte, out *Events) {
	c := json.MakeCursor(output)
	var texts [trackCount]repetition
	for t := range texts {
		texts[t].streamed = d.said[t]
	}
	for i := int64(0); ; i++ {
		if i == 0 && (output == nil || !c.Enter('[')) || i > 0 && !c.More('[') {
			return
		}
		raw := c.Raw()
		var it responsesItem
		it.read(raw)
		switch string(it.kind) {
		case "message":
			d.repeatRest(&texts, trackText, it.content, i, out)
		case "reasoning":
			d.repeatRest(&texts, trackSummary, it.summary, i, out)
			d.repeatRest(&texts, trackThought, it.content, i, out)
		default:
			if !d.hasCall(&it) {
				d.decodeItem(raw, -1, true, out)
			}
		}
	}
}

// repeatRest adds what was not streamed of the parts of an item, given what all
// of its tracks have streamed.
func (d *openAIResponses) repeatRest(texts *[trackCount]repetition, t track, parts []byte, output int64, out *Events) {
	part := int64(0)
	eachPart(t, parts, func(t track, raw []byte) {
		d.put(partKey{t, output, part}, texts[t].rest(raw), out)
		part++
	})
}

// hasCall reports whether the tool call of an item was passed on, or may have
// been.
func (d *openAIResponses) hasCall(it *responsesItem) bool {
	id := it.ownID()
	for i := range d.calls.list {
		if isCallID(id, d.calls.list[i].id) {
			return true
		}
	}
	return len(id) == 0 && d.calls.opened > 0 || d.calls.opened > len(d.calls.list)
}

var _ Decoder = (*openAIResponses)(nil)
