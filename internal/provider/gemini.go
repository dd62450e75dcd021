package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// gemini decodes what Gemini's streamGenerateContent sends, as server-sent
// events or as one JSON array, from Google AI and from Vertex:
// https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent
//
// Nothing marks the end of the events. A response is complete when its body
// ends after a finishReason, which several candidates or models repeat, or
// after the prompt was blocked.
type gemini struct {
	candidates []geminiCandidate // by index
	usage      apartCounts
}

// geminiCandidate is what is known of one candidate.
type geminiCandidate struct {
	seen   bool
	opened int              // how many tool calls were passed on
	args   *geminiArguments // of the tool call that comes in parts, nil where none is open
}

func newGemini() Decoder { return new(gemini) }

func isGemini(p probe) bool {
	return p.object.Get("candidates").IsArray() || isObject(p.object, "promptFeedback") || isObject(p.object, "usageMetadata")
}

// Decode translates one event.
func (d *gemini) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	d.decode(&c, out)
	if !out.whole(&c) {
		return errInvalid
	}
	return nil
}

// decode translates the response that is next.
func (d *gemini) decode(c *json.Cursor, out *Events) {
	var model, id, blocked []byte
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "candidates":
			first := true
			for ok := c.EnterOutput('['); ok; ok = c.More('[') {
				d.decodeCandidate(c, first, out)
				first = false
			}
		case "promptFeedback":
			blocked = c.Field("blockReason")
		case "usageMetadata":
			out.Usage(d.usage.read(c))
		case "modelVersion":
			model = c.Str()
		case "responseId":
			id = c.Str()
		default:
			c.Skip()
		}
	}
	if !c.Bad() {
		out.Identify(model, id)
		out.Block(0, blocked)
	}
}

// decodeCandidate reads one candidate. Its index may come after its content,
// so that the parts are kept until all of it is read.
func (d *gemini) decodeCandidate(c *json.Cursor, first bool, out *Events) {
	var parts, finish []byte
	index := int64(-1)
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
				if string(c.Key()) == "parts" {
					parts = c.Output('[')
				} else {
					c.Skip()
				}
			}
		case "finishReason":
			finish = c.Str()
		case "index":
			index = c.Count()
		default:
			c.Skip()
		}
	}
	at, ok := out.Choice(index, first && c.Peek() == ']')
	if !ok {
		c.Fail()
	}
	if c.Bad() {
		return
	}
	candidate := d.candidate(at, out)
	inner := json.MakeCursor(parts)
	for ok := parts != nil && inner.Open('['); ok; ok = inner.More('[') {
		candidate.decodePart(&inner, at, out)
	}
	if len(finish) > 0 {
		candidate.endCall(at, out) // Vertex may leave out its last part
		out.Finish(at, finish)
	}
	if inner.Bad() {
		c.Fail()
	}
}

// candidate returns the candidate with this index.
func (d *gemini) candidate(index int, out *Events) *geminiCandidate {
	for len(d.candidates) <= index {
		d.candidates = append(d.candidates, geminiCandidate{})
	}
	candidate := &d.candidates[index]
	if !candidate.seen {
		candidate.seen = true
		out.Open(index)
	}
	return candidate
}

// decodePart adds a part. Code that the provider executes, its results, images
// and signatures are output that is no event.
func (cand *geminiCandidate) decodePart(c *json.Cursor, index int, out *Events) {
	var text, call []byte
	thought, silent := false, false
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "text":
			text = c.Text()
		case "thought":
			thought = c.Bool()
		case "functionCall":
			call = c.Output('{')
		default:
			silent = !isEmpty(c.Raw()) || silent
		}
	}
	if silent {
		out.Silent()
	}
	kind := event.Text
	if thought {
		kind = event.Reasoning
	}
	out.Delta(kind, index, text)
	if call != nil && !cand.decodeCall(call, index, out) {
		c.Fail()
	}
}

// decodeCall adds a tool call, which comes whole or, from Vertex where it was
// asked for, in parts: one with the name, some with partial arguments, and an
// empty one at the end. It reports whether the part could be understood.
func (cand *geminiCandidate) decodeCall(call []byte, index int, out *Events) bool {
	var id, name, args, partial []byte
	more := false
	c := json.MakeCursor(call)
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "id":
			id = c.Str()
		case "name":
			name = c.Str()
		case "args":
			args = c.Output('{')
		case "partialArgs":
			partial = c.Output('[')
		case "willContinue":
			more = c.Bool()
		default:
			c.Skip()
		}
	}
	if len(name) > 0 {
		cand.endCall(index, out)
		tool := event.Tool{Index: cand.opened, ID: callID(id), Name: word(name)}
		cand.opened++
		if !more && partial == nil {
			if args == nil {
				args = []byte("{}")
			}
			out.OpenTool(index, tool, arguments{object: args})
			return !c.Bad()
		}
		out.OpenTool(index, tool, arguments{})
		cand.args = new(geminiArguments)
	}
	if cand.args == nil { // the end of a call that has ended already
		return !c.Bad()
	}
	text, ok := cand.args.add(partial)
	out.Tool(index, cand.opened-1, arguments{plain: text})
	if !more {
		cand.endCall(index, out)
	}
	return ok && !c.Bad()
}

// endCall ends the tool call that is open, if one is.
func (cand *geminiCandidate) endCall(index int, out *Events) {
	if cand.args != nil {
		out.Tool(index, cand.opened-1, arguments{plain: cand.args.end()})
		cand.args = nil
	}
}

var _ Decoder = (*gemini)(nil)
