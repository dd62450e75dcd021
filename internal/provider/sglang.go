package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// sglang decodes the streams of SGLang's own API, /generate:
// https://docs.sglang.io/basic_usage/native_api.html
//
// The text of an event is all of it so far, or a piece where the server was
// started so, and the stream does not say which. But output_ids, in newer
// versions, are the tokens of the text: as many as completion_tokens where it
// is all of it. Without them see growing.
//
// A batch of prompts, or several samples of one, share a stream, each with its
// index. A finish reason is an object with a type, and was a word once. The
// stream ends with [DONE].
type sglang struct {
	choices []sglangChoice // by index
}

// sglangChoice is what is known of one choice.
type sglangChoice struct {
	seen bool
	text growing
}

func newSGLang() Decoder { return new(sglang) }

func isSGLang(p probe) bool {
	return p.object.Get("text").Type == gjson.String && isObject(p.object, "meta_info")
}

// sglangEvent is what an event carries: the insides of strings, objects whole.
// What is not there is nil.
type sglangEvent struct {
	index  int64
	text   []byte
	tokens int64 // of the text, -1 where the event does not have them
	id     []byte
	reason []byte // the finish reason as an object
	finish []byte
	usage  event.TokenUsage
}

// Decode translates one event.
func (d *sglang) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := sglangEvent{tokens: -1, usage: noUsage}
	e.read(&c)
	index, ok := out.Choice(e.index, true)
	if !out.whole(&c) || !ok {
		return errInvalid
	}
	choice := d.choice(index, out)
	out.Identify(nil, e.id)
	if e.tokens > 0 && e.usage.Output > e.tokens {
		choice.text.mode = growsInPieces
	}
	choice.text.said.add(out.Delta(event.Text, index, choice.text.next(e.text, len(e.finish) > 0)))
	out.Usage(e.usage)
	if string(e.finish) == "abort" && len(d.choices) == 1 && e.reason != nil {
		out.Fail(sse.Event{Data: e.reason}) // it says why
		return nil
	}
	out.Finish(index, e.finish)
	return nil
}

// choice returns the choice with this index.
func (d *sglang) choice(index int, out *Events) *sglangChoice {
	for len(d.choices) <= index {
		d.choices = append(d.choices, sglangChoice{})
	}
	choice := &d.choices[index]
	if !choice.seen {
		choice.seen = true
		out.Open(index)
	}
	return choice
}

func (e *sglangEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "text":
			e.text = c.Text()
		case "index":
			e.index = c.Count()
		case "output_ids":
			if c.Peek() == '[' {
				e.tokens = 0
			}
			for ok := c.Enter('['); ok; ok = c.More('[') {
				e.tokens++
				c.Skip()
			}
		case "meta_info":
			e.readMeta(c)
		default:
			c.Skip()
		}
	}
}

func (e *sglangEvent) readMeta(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "id":
			e.id = c.Str()
		case "finish_reason":
			if c.Peek() == '{' {
				e.reason = c.Raw()
				reason := json.MakeCursor(e.reason)
				e.finish = reason.Field("type")
			} else {
				e.finish = c.Str()
			}
		case "prompt_tokens":
			e.usage.Input = c.Count()
		case "completion_tokens":
			e.usage.Output = c.Count()
		case "cached_tokens":
			addCount(&e.usage.CachedInput, c.Count())
		case "reasoning_tokens":
			addCount(&e.usage.Reasoning, c.Count())
		default:
			c.Skip()
		}
	}
}

var _ Decoder = (*sglang)(nil)
