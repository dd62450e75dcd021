package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
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
}

// Decode translates one line.
func (d *ollama) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	line := ollamaLine{usage: noUsage}
	line.read(&c)
	if !out.whole(&c) {
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
	if line.done {
		out.Finish(0, line.reason)
		out.Usage(line.usage)
		out.End()
	}
	return nil
}

func (l *ollamaLine) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "message":
			l.readMessage(c)
		case "response":
			l.text = c.Str()
		case "thinking":
			l.thinking = c.Str()
		case "model":
			l.model = c.Str()
		case "done":
			l.done = c.Bool()
		case "done_reason":
			l.reason = c.Str()
		case "prompt_eval_count":
			l.usage.Input = c.Count()
		case "eval_count":
			l.usage.Output = c.Count()
		default:
			c.Skip()
		}
	}
}

func (l *ollamaLine) readMessage(c *json.Cursor) {
	if c.Peek() != '{' {
		c.Skip()
		return
	}
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			l.text = c.Str()
		case "thinking":
			l.thinking = c.Str()
		case "tool_calls":
			l.toolCalls = c.Output('[')
		default:
			c.Skip()
		}
	}
}

// emitCalls adds tool calls, each of which comes whole.
func (d *ollama) emitCalls(calls []byte, out *Events) {
	c := json.MakeCursor(calls)
	for ok := c.Open('['); ok; ok = c.More('[') {
		if c.Peek() != '{' {
			c.Skip()
			continue
		}
		var f chatFragment
		for ok := c.Open('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "id":
				f.id = c.Str()
			case "function":
				f.readFunction(&c)
			default:
				c.Skip()
			}
		}
		out.OpenTool(0, event.Tool{Index: d.calls, ID: callID(f.id), Name: word(f.name)}, f.args)
		d.calls++
	}
}

var _ Decoder = (*ollama)(nil)
