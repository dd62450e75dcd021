package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// chatDelta is what a delta carries: the insides of strings, and arrays and
// objects whole. What is not there is nil.
type chatDelta struct {
	content []byte
	parts   []byte // content as an array: Mistral's reasoning models
	refusal []byte

	// The same reasoning under four names: a server may use any of them, or
	// two at once.
	reasoningContent []byte
	reasoning        []byte
	reasoningText    []byte
	reasoningDetails []byte

	toolCalls    []byte
	functionCall []byte // the legacy form of one tool call
	silent       bool   // there is output that is no event
}

// read reads a delta, and reports whether there is one.
func (d *chatDelta) read(c *json.Cursor) bool {
	isDelta := c.Peek() == '{'
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			d.readContent(c)
		case "reasoning_content":
			d.reasoningContent = c.Str()
		case "reasoning":
			d.reasoning = c.Str()
		case "reasoning_text": // GitHub Copilot
			d.reasoningText = c.Str()
		case "images", "audio":
			d.silent = !isEmpty(c.Raw()) || d.silent
		case "reasoning_details":
			d.reasoningDetails = readArray(c)
		case "refusal":
			d.refusal = c.Str()
		case "tool_calls":
			d.toolCalls = c.Output('[')
		case "function_call":
			d.functionCall = c.Output('{')
		default:
			c.Skip()
		}
	}
	return isDelta
}

// readContent reads content, which is output: whatever cannot be understood
// must not be lost in silence.
func (d *chatDelta) readContent(c *json.Cursor) {
	if c.Peek() == '"' {
		d.content = c.Quoted()
		return
	}
	d.parts = c.Output('[')
}

// isEmpty reports whether a JSON value is null, or has nothing in it.
func isEmpty(raw []byte) bool { return !isError(raw) }

// readArray reads a value, nil where it is no array.
func readArray(c *json.Cursor) []byte {
	if c.Peek() != '[' {
		c.Skip()
		return nil
	}
	return c.Raw()
}

// emit adds what the delta carries, in the order in which models produce it.
func (d *chatDelta) emit(index int, choice *chatChoice, out *Events) {
	switch {
	case len(d.reasoningContent) > 0:
		out.Delta(event.Reasoning, index, d.reasoningContent)
	case len(d.reasoning) > 0:
		out.Delta(event.Reasoning, index, d.reasoning)
	case len(d.reasoningText) > 0:
		out.Delta(event.Reasoning, index, d.reasoningText)
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
	if d.silent {
		out.Silent()
	}
}

// emitDetails adds the texts of reasoning_details. Its other entries, which
// are signatures and what is encrypted, are output that is no event.
func emitDetails(details []byte, index int, out *Events) {
	c := json.MakeCursor(details)
	for ok := c.Open('['); ok; ok = c.More('[') {
		if c.Peek() != '{' {
			c.Skip()
			continue
		}
		var text, summary, data []byte
		for ok := c.Open('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "text":
				text = c.Str()
			case "summary":
				summary = c.Str()
			case "data":
				data = c.Str()
			default:
				c.Skip()
			}
		}
		if len(text) == 0 {
			text = summary
		}
		out.Delta(event.Reasoning, index, text)
		if len(data) > 0 {
			out.Silent()
		}
	}
}

// emitParts adds content that is an array, of texts and of thinking, which is
// an array of texts in its turn.
func emitParts(parts []byte, index int, out *Events) {
	c := json.MakeCursor(parts)
	for ok := c.Open('['); ok; ok = c.More('[') {
		switch c.Peek() {
		case '"':
			out.Delta(event.Text, index, c.Quoted())
		case '{':
			emitPart(&c, index, out)
		default:
			c.Skip()
		}
	}
}

func emitPart(c *json.Cursor, index int, out *Events) {
	var kind, text, thinking, thoughts []byte
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "type":
			kind = c.Str()
		case "text":
			text = c.Str()
		case "thinking", "reasoning", "summary":
			if c.Peek() == '[' {
				thoughts = c.Raw()
			} else {
				thinking = c.Str()
			}
		default:
			c.Skip()
		}
	}
	switch string(kind) {
	case "text", "output_text", "":
		out.Delta(event.Text, index, text)
	case "thinking", "reasoning":
		if len(thinking) == 0 {
			thinking = text
		}
		out.Delta(event.Reasoning, index, thinking)
		if thoughts != nil {
			emitDetails(thoughts, index, out)
		}
	default: // an image, say
		out.Silent()
	}
}
