package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// llamaCpp decodes the streams of llama.cpp's own completions, of /completion,
// /completions and /infill:
// https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
//
// The last event of a prompt repeats the prompt and the settings. Several
// prompts share a stream, each with its index.
type llamaCpp struct {
	prompts []promptState // by index
}

// promptState is how far the completion of one prompt has come.
type promptState struct{ seen, stopped bool }

func newLlamaCpp() Decoder { return new(llamaCpp) }

func isLlamaCpp(p probe) bool {
	return p.object.Get("content").Type == gjson.String && p.object.Get("stop").IsBool()
}

// llamaCppEvent is what an event carries: the insides of strings. What is not
// there is nil.
type llamaCppEvent struct {
	index  int64
	text   []byte
	stop   bool
	finish []byte
	model  []byte
	usage  event.TokenUsage
}

// Decode translates one event.
func (d *llamaCpp) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := llamaCppEvent{usage: noUsage}
	e.read(&c)
	index, ok := out.Choice(e.index, true)
	if !out.whole(&c) || !ok {
		return errInvalid
	}
	prompt := d.prompt(index, out)
	out.Identify(e.model, nil)
	out.Delta(event.Text, index, e.text)
	if e.stop {
		prompt.stopped = true
		out.Usage(e.usage)
		out.Finish(index, e.finish)
		if d.stopped() {
			out.End()
		}
	}
	return nil
}

// prompt returns the prompt with this index.
func (d *llamaCpp) prompt(index int, out *Events) *promptState {
	for len(d.prompts) <= index {
		d.prompts = append(d.prompts, promptState{})
	}
	prompt := &d.prompts[index]
	if !prompt.seen {
		prompt.seen = true
		out.Open(index)
	}
	return prompt
}

// stopped reports whether every prompt that has been seen has stopped.
func (d *llamaCpp) stopped() bool {
	for _, prompt := range d.prompts {
		if prompt.seen && !prompt.stopped {
			return false
		}
	}
	return true
}

// read reads an event. Why it stopped is a word since December 2024, and three
// flags before.
func (e *llamaCppEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			e.text = c.Text()
		case "stop":
			e.stop = c.Bool()
		case "index":
			e.index = c.Count()
		case "stop_type":
			e.finish = c.Str()
		case "stopped_eos":
			e.readFlag(c, "eos")
		case "stopped_word":
			e.readFlag(c, "word")
		case "stopped_limit":
			e.readFlag(c, "limit")
		case "model":
			e.model = c.Str()
		case "tokens_evaluated":
			e.usage.Input = c.Count()
		case "tokens_predicted":
			e.usage.Output = c.Count()
		default:
			c.Skip()
		}
	}
}

// readFlag reads a flag that stands for a finish reason.
func (e *llamaCppEvent) readFlag(c *json.Cursor, finish string) {
	if c.Bool() {
		e.finish = []byte(finish)
	}
}

var _ Decoder = (*llamaCpp)(nil)
