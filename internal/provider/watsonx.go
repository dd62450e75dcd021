package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// watsonx decodes the streams of IBM watsonx.ai's text generation:
// https://cloud.ibm.com/apidocs/watsonx-ai#text-generation-stream
// Its text chat is OpenAI's.
//
// The last event is the one with a stop_reason other than not_finished. The
// count of the prompt's tokens comes once, and is 0 in the other events.
type watsonx struct{ begun bool }

func newWatsonx() Decoder { return new(watsonx) }

func isWatsonx(p probe) bool { return p.object.Get("results.0.generated_text").Type == gjson.String }

// Decode translates one event.
func (d *watsonx) Decode(ev sse.Event, out *Events) error {
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	c := json.MakeCursor(ev.Data)
	var model []byte
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "results":
			for ok := c.EnterOutput('['); ok; ok = c.More('[') {
				decodeWatsonxResult(&c, out)
			}
		case "model_id":
			model = c.Str()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	out.Identify(model, nil)
	return nil
}

func decodeWatsonxResult(c *json.Cursor, out *Events) {
	var text, finish []byte
	usage := noUsage
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "generated_text":
			text = c.Text()
		case "stop_reason":
			finish = c.Str()
		case "input_token_count":
			usage.Input = c.Count()
		case "generated_token_count":
			usage.Output = c.Count()
		default:
			c.Skip()
		}
	}
	if usage.Input == 0 {
		usage.Input = -1
	}
	out.Delta(event.Text, 0, text)
	out.Usage(usage)
	if string(finish) != "not_finished" {
		out.Finish(0, finish)
	}
}

var _ Decoder = (*watsonx)(nil)
