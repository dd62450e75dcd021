package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// triton decodes the streams of the generate extension of NVIDIA's Triton
// Inference Server:
// https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_generate.html
//
// The documentation calls the extension provisional. It names no last event: a
// response is complete when its body ends. The other members of an event are
// the outputs of the model behind it, by the names that its configuration gives
// them; of these the finish reason and the token counts are read that Triton's
// vLLM backend sends when asked. Every text is taken for a piece, as the
// backends of vLLM and TensorRT-LLM send it; a model that sends the whole text
// with every event cannot be told from one that repeats itself.
type triton struct{ begun bool }

func newTriton() Decoder { return new(triton) }

func isTriton(p probe) bool {
	return p.object.Get("text_output").Type == gjson.String && p.object.Get("model_name").Type == gjson.String
}

// Decode translates one event.
func (d *triton) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var text, model, finish []byte
	usage := noUsage
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "text_output":
			text = c.Text()
		case "model_name":
			model = c.Str()
		case "finish_reason":
			finish = c.Str()
		case "num_input_tokens":
			usage.Input = c.Count()
		case "num_output_tokens":
			usage.Output = c.Count()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	if !d.begun {
		d.begun = true
		out.Open(0)
	}
	out.Identify(model, nil)
	out.Delta(event.Text, 0, text)
	out.Usage(usage)
	if string(finish) != "None" { // Python's word for none yet
		out.Finish(0, finish)
	}
	return nil
}

var _ Decoder = (*triton)(nil)
