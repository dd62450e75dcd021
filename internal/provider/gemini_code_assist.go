package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// geminiCodeAssist decodes the streams of Gemini Code Assist, the API behind
// gemini-cli's sign-in with Google: the responses of Gemini's own API, each in
// an envelope, {"response": {…}, "traceId": "…"}.
//
// Google documents it only in the source of its client, gemini-cli, which takes
// traceId for the id of the response. Where there is none, a responseId within
// is taken. Metadata that an envelope may have beside the two is not read.
type geminiCodeAssist struct{ gemini }

func newGeminiCodeAssist() Decoder { return new(geminiCodeAssist) }

func isGeminiCodeAssist(p probe) bool {
	return isGemini(probe{object: p.object.Get("response")})
}

// Decode translates one event.
func (d *geminiCodeAssist) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var id []byte
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "response":
			if c.Peek() == '{' {
				d.decode(&c, out)
			} else {
				c.Skip()
			}
		case "traceId":
			id = c.Str()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	out.Identify(nil, id)
	return nil
}

var _ Decoder = (*geminiCodeAssist)(nil)
