package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
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
	c := cursor{data: ev.Data}
	var model []byte
	failed := false
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "results":
			for ok := c.enterOutput('['); ok; ok = c.more('[') {
				decodeWatsonxResult(&c, out)
			}
		case "model_id":
			model = c.str()
		case "errors", "error": // the gateway before it has one
			failed = c.isError() || failed
		default:
			c.skip()
		}
	}
	if !c.end() {
		return errInvalid
	}
	out.Identify(model, nil)
	if failed {
		out.Fail(ev)
	}
	return nil
}

func decodeWatsonxResult(c *cursor, out *Events) {
	var text, finish []byte
	usage := noUsage
	for ok := c.open('{'); ok; ok = c.more('{') {
		switch string(c.key()) {
		case "generated_text":
			text = readText(c)
		case "stop_reason":
			finish = c.str()
		case "input_token_count":
			usage.Input = c.count()
		case "generated_token_count":
			usage.Output = c.count()
		default:
			c.skip()
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
