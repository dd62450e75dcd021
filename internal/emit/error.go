package emit

import (
	"bytes"
	stdjson "encoding/json"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// AppendError appends an error as a JSON object in the shape of OpenAI's, on
// one line:
//
//	{"error":{"type":…,"code":…,"message":…,"response_id":…,"upstream":…}}
//
// response_id is left out where it is empty, upstream where there is none or
// it is not JSON. It is the body of an HTTP error as well as the data of an
// error frame.
func AppendError(dst []byte, e *event.Error, responseID string) []byte {
	dst = append(dst, '{')
	dst = appendErrorMember(dst, e, responseID)
	return append(dst, '}')
}

// AppendAnthropicError appends an error in the shape of Anthropic's, which
// wraps the same object: {"type":"error","error":{…}}.
func AppendAnthropicError(dst []byte, e *event.Error, responseID string) []byte {
	dst = append(dst, `{"type":"error",`...)
	dst = appendErrorMember(dst, e, responseID)
	return append(dst, '}')
}

func appendErrorMember(dst []byte, e *event.Error, responseID string) []byte {
	dst = append(dst, `"error":{"type":"`...)
	dst = append(dst, e.Type()...)
	dst = append(dst, `","code":"`...)
	dst = json.Append(dst, string(e.Code))
	dst = append(dst, `","message":"`...)
	dst = json.Append(dst, e.Message)
	dst = append(dst, '"')
	if responseID != "" {
		dst = append(dst, `,"response_id":"`...)
		dst = json.Append(dst, responseID)
		dst = append(dst, '"')
	}
	if upstream, ok := oneLine(e.Upstream); ok {
		dst = append(dst, `,"upstream":`...)
		dst = append(dst, upstream...)
	}
	return append(dst, '}')
}

// oneLine returns a JSON text without line breaks and with valid UTF-8 only:
// it comes from outside and must not break a frame, or a client that decodes
// strictly. ok is false where it is no JSON text.
func oneLine(raw []byte) (compact []byte, ok bool) {
	var b bytes.Buffer
	if len(raw) == 0 || stdjson.Compact(&b, raw) != nil {
		return nil, false
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")), true
}
