package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
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
	c := cursor{data: ev.Data}
	var model, id, blocked []byte
	failed := false
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "candidates":
			for ok := c.enterOutput('['); ok; ok = c.more('[') {
				d.decodeCandidate(&c, out)
			}
		case "promptFeedback":
			blocked = c.field("blockReason")
		case "usageMetadata":
			out.Usage(decodeUsage(&c, "promptTokenCount", "candidatesTokenCount"))
		case "modelVersion":
			model = c.str()
		case "responseId":
			id = c.str()
		case "error":
			failed = c.isError()
		default:
			c.skip()
		}
	}
	if !c.end() {
		return errInvalid
	}
	out.Identify(model, id)
	if failed {
		out.Fail(ev)
		return nil
	}
	out.Block(0, blocked)
	return nil
}

// decodeCandidate reads one candidate. Its index may come after its content,
// so that the parts are kept until all of it is read.
func (d *gemini) decodeCandidate(c *cursor, out *Events) {
	var parts, finish []byte
	index := int64(0)
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "content":
			for ok := c.enterOutput('{'); ok; ok = c.more('{') {
				if string(c.key()) == "parts" {
					parts = readOutput(c, '[')
				} else {
					c.skip()
				}
			}
		case "finishReason":
			finish = c.str()
		case "index":
			index = max(c.count(), 0)
		default:
			c.skip()
		}
	}
	if index >= maxChoices {
		c.fail()
	}
	if c.bad {
		return
	}
	candidate := d.candidate(int(index), out)
	inner := cursor{data: parts}
	for ok := parts != nil && inner.open('['); ok; ok = inner.more('[') {
		candidate.decodePart(&inner, int(index), out)
	}
	if len(finish) > 0 {
		candidate.endCall(int(index), out) // Vertex may leave out its last part
		out.Finish(int(index), finish)
	}
	if inner.bad {
		c.fail()
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

// decodePart adds a part. Code that the provider executes, its results, and
// images are no output.
func (cand *geminiCandidate) decodePart(c *cursor, index int, out *Events) {
	var text, call []byte
	thought := false
	for ok := c.enter('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "text":
			text = readText(c)
		case "thought":
			thought = c.boolean()
		case "functionCall":
			call = readOutput(c, '{')
		default:
			c.skip()
		}
	}
	kind := event.Text
	if thought {
		kind = event.Reasoning
	}
	out.Delta(kind, index, text)
	if call != nil && !cand.decodeCall(call, index, out) {
		c.fail()
	}
}

// decodeCall adds a tool call, which comes whole or, from Vertex where it was
// asked for, in parts: one with the name, some with partial arguments, and an
// empty one at the end. It reports whether the part could be understood.
func (cand *geminiCandidate) decodeCall(call []byte, index int, out *Events) bool {
	var id, name, args, partial []byte
	more := false
	c := cursor{data: call}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "id":
			id = c.str()
		case "name":
			name = c.str()
		case "args":
			args = readOutput(&c, '{')
		case "partialArgs":
			partial = readOutput(&c, '[')
		case "willContinue":
			more = c.boolean()
		default:
			c.skip()
		}
	}
	if len(name) > 0 {
		cand.endCall(index, out)
		tool := event.Tool{Index: cand.opened, ID: unquote(id), Name: unquote(name)}
		cand.opened++
		if !more && partial == nil {
			if args == nil {
				args = []byte("{}")
			}
			out.OpenTool(index, tool, arguments{object: args})
			return !c.bad
		}
		out.OpenTool(index, tool, arguments{})
		cand.args = new(geminiArguments)
	}
	if cand.args == nil { // the end of a call that has ended already
		return !c.bad
	}
	text, ok := cand.args.add(partial)
	out.Tool(index, cand.opened-1, arguments{plain: text})
	if !more {
		cand.endCall(index, out)
	}
	return ok && !c.bad
}

// endCall ends the tool call that is open, if one is.
func (cand *geminiCandidate) endCall(index int, out *Events) {
	if cand.args != nil {
		out.Tool(index, cand.opened-1, arguments{plain: cand.args.end()})
		cand.args = nil
	}
}

var _ Decoder = (*gemini)(nil)
