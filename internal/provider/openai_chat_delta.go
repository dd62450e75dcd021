package provider

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// chatDelta is what a delta carries: the insides of strings, and arrays and
// objects whole. What is not there is nil.
type chatDelta struct {
	content []byte
	parts   []byte // content as an array: Mistral's reasoning models
	refusal []byte

	// The same reasoning under three names: a server may use any of them, or
	// two at once.
	reasoningContent []byte
	reasoning        []byte
	reasoningDetails []byte

	toolCalls    []byte
	functionCall []byte // the legacy form of one tool call
}

// read reads a delta, and reports whether there is one.
func (d *chatDelta) read(c *cursor) bool {
	if c.peek() == 'n' {
		c.skip()
		return false
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "content":
			d.readContent(c)
		case "reasoning_content":
			d.reasoningContent = c.str()
		case "reasoning":
			d.reasoning = c.str()
		case "reasoning_details":
			d.reasoningDetails = readArray(c)
		case "refusal":
			d.refusal = c.str()
		case "tool_calls":
			d.toolCalls = readOutput(c, '[')
		case "function_call":
			d.functionCall = readOutput(c, '{')
		default:
			c.skip()
		}
	}
	return true
}

// readContent reads content, which is output: whatever cannot be understood
// must not be lost in silence.
func (d *chatDelta) readContent(c *cursor) {
	if c.peek() == '"' {
		d.content = c.quoted()
		return
	}
	d.parts = readOutput(c, '[')
}

// readOutput reads an array or object that carries output, nil where it is
// null. Anything else cannot be decoded.
func readOutput(c *cursor, bracket byte) []byte {
	switch c.peek() {
	case bracket:
		return c.raw()
	case 'n':
		c.skip()
	default:
		c.fail()
	}
	return nil
}

// readArray reads a value, nil where it is no array.
func readArray(c *cursor) []byte {
	if c.peek() != '[' {
		c.skip()
		return nil
	}
	return c.raw()
}

// emit adds what the delta carries, in the order in which models produce it.
func (d *chatDelta) emit(index int, choice *chatChoice, out *Events) {
	switch {
	case len(d.reasoningContent) > 0:
		out.Delta(event.Reasoning, index, d.reasoningContent)
	case len(d.reasoning) > 0:
		out.Delta(event.Reasoning, index, d.reasoning)
	case d.reasoningDetails != nil:
		emitDetails(d.reasoningDetails, index, out)
	}
	out.Delta(event.Text, index, d.content)
	if d.parts != nil {
		emitParts(d.parts, index, out)
	}
	out.Delta(event.Refusal, index, d.refusal)
	if d.toolCalls != nil {
		choice.emitCalls(d.toolCalls, index, out)
	}
	if d.functionCall != nil {
		choice.emitFunctionCall(d.functionCall, index, out)
	}
}

// emitDetails adds the texts of reasoning_details. Its other entries are
// signatures and what is encrypted.
func emitDetails(details []byte, index int, out *Events) {
	c := cursor{data: details}
	for ok := c.open('['); ok; ok = c.more('[') {
		if c.peek() != '{' {
			c.skip()
			continue
		}
		var text, summary []byte
		for ok := c.open('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "text":
				text = c.str()
			case "summary":
				summary = c.str()
			default:
				c.skip()
			}
		}
		if len(text) == 0 {
			text = summary
		}
		out.Delta(event.Reasoning, index, text)
	}
}

// emitParts adds content that is an array, of texts and of thinking, which is
// an array of texts in its turn.
func emitParts(parts []byte, index int, out *Events) {
	c := cursor{data: parts}
	for ok := c.open('['); ok; ok = c.more('[') {
		switch c.peek() {
		case '"':
			out.Delta(event.Text, index, c.quoted())
		case '{':
			emitPart(&c, index, out)
		default:
			c.skip()
		}
	}
}

func emitPart(c *cursor, index int, out *Events) {
	var kind, text, thinking, thoughts []byte
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "type":
			kind = c.str()
		case "text":
			text = c.str()
		case "thinking":
			if c.peek() == '[' {
				thoughts = c.raw()
			} else {
				thinking = c.str()
			}
		default:
			c.skip()
		}
	}
	switch string(kind) {
	case "text", "":
		out.Delta(event.Text, index, text)
	case "thinking":
		out.Delta(event.Reasoning, index, thinking)
		if thoughts != nil {
			emitDetails(thoughts, index, out)
		}
	}
}
