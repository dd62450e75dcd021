package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// ollama decodes the lines of Ollama's own API, of /api/chat and of
// /api/generate. They differ in where the text is.
type ollama struct {
	calls  int
	opened bool
}

func newOllamaChat() Decoder     { return new(ollama) }
func newOllamaGenerate() Decoder { return new(ollama) }

func isOllamaChat(p probe) bool {
	return p.object.Get("done").IsBool() && p.object.Get("message").IsObject()
}

func isOllamaGenerate(p probe) bool {
	return p.object.Get("done").IsBool() && p.object.Get("response").Type == gjson.String
}

// ollamaLine is what a line carries: the insides of strings, and arrays whole.
type ollamaLine struct {
	text      []byte
	thinking  []byte
	toolCalls []byte
	model     []byte
	reason    []byte
	usage     event.TokenUsage
	done      bool
	failed    bool
}

// Decode translates one line.
func (d *ollama) Decode(ev sse.Event, out *Events) error {
	c := cursor{data: ev.Data}
	line := ollamaLine{usage: noUsage}
	line.read(&c)
	if !c.end() {
		return errInvalid
	}
	if !d.opened {
		d.opened = true
		out.Open(0)
	}
	out.Identify(line.model, nil)
	out.Delta(event.Reasoning, 0, line.thinking)
	out.Delta(event.Text, 0, line.text)
	if line.toolCalls != nil {
		d.emitCalls(line.toolCalls, out)
	}
	switch {
	case line.failed:
		out.Fail(ev)
	case line.done:
		out.Finish(0, line.reason)
		out.Usage(line.usage)
		out.End()
	}
	return nil
}

func (l *ollamaLine) read(c *cursor) {
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "message":
			l.readMessage(c)
		case "response":
			l.text = c.str()
		case "thinking":
			l.thinking = c.str()
		case "model":
			l.model = c.str()
		case "done":
			l.done = c.boolean()
		case "done_reason":
			l.reason = c.str()
		case "prompt_eval_count":
			l.usage.Input = c.count()
		case "eval_count":
			l.usage.Output = c.count()
		case "error":
			l.failed = c.isError()
		default:
			c.skip()
		}
	}
}

func (l *ollamaLine) readMessage(c *cursor) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "content":
			l.text = c.str()
		case "thinking":
			l.thinking = c.str()
		case "tool_calls":
			l.toolCalls = readOutput(c, '[')
		default:
			c.skip()
		}
	}
}

// emitCalls adds tool calls, each of which comes whole.
func (d *ollama) emitCalls(calls []byte, out *Events) {
	c := cursor{data: calls}
	for ok := c.open('['); ok; ok = c.more('[') {
		if c.peek() != '{' {
			c.skip()
			continue
		}
		var f chatFragment
		for ok := c.open('{'); ok; ok = c.more('{') {
			switch string(c.key()) {
			case "id":
				f.id = c.str()
			case "function":
				f.readFunction(&c)
			default:
				c.skip()
			}
		}
		out.OpenTool(0, event.Tool{Index: d.calls, ID: unquote(f.id), Name: unquote(f.name)}, f.args)
		d.calls++
	}
}

var _ Decoder = (*ollama)(nil)
