package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// cloudflare decodes the native streams of Cloudflare's Workers AI, in which an
// event is {"response": "…"}, mostly with padding in a member p, and which end
// with usage and [DONE]: https://developers.cloudflare.com/workers-ai/
//
// The documentation shows text only. How tool calls and a finish reason come is
// taken from Cloudflare's own client, workers-ai-provider: calls in fragments
// like OpenAI's, or each whole with name and arguments at the top of it, and at
// the end of one a fragment in which everything is null. A token that is a
// number is sent as one. Many models answer in OpenAI's format instead, and no
// event names the model.
//
// Anyone may send {"response": "…"}, so that an event without the padding is of
// this format only where the request path says so.
type cloudflare struct {
	choice chatChoice
	begun  bool
}

func newCloudflare() Decoder { return new(cloudflare) }

func isCloudflare(p probe) bool {
	switch p.object.Get("response").Type {
	case gjson.String, gjson.Number:
		return p.api == "cloudflare-workers-ai" || p.object.Get("p").Type == gjson.String
	case gjson.Null, gjson.False, gjson.True, gjson.JSON:
	}
	return p.api == "cloudflare-workers-ai" && p.object.Get("tool_calls.0").IsObject()
}

// cloudflareEvent is what an event carries: the insides of strings, the list
// of tool calls whole. What is not there is nil.
type cloudflareEvent struct {
	text      []byte
	toolCalls []byte
	finish    []byte
	usage     event.TokenUsage
}

// Decode translates one event.
func (d *cloudflare) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	e := cloudflareEvent{usage: noUsage}
	e.read(&c)
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Delta(event.Text, 0, e.text)
	if e.toolCalls != nil {
		d.choice.emitCalls(e.toolCalls, 0, out)
	}
	out.Usage(e.usage)
	out.Finish(0, e.finish)
	return nil
}

func (e *cloudflareEvent) read(c *json.Cursor) {
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "response":
			if b := c.Peek(); b >= '0' && b <= '9' || b == '-' {
				e.text = c.Raw()
			} else {
				e.text = c.Text()
			}
		case "tool_calls":
			e.toolCalls = c.Output('[')
		case "finish_reason":
			e.finish = c.Str()
		case "usage":
			e.usage = decodeUsage(c)
		default:
			c.Skip()
		}
	}
}

var _ Decoder = (*cloudflare)(nil)
