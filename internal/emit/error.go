package emit

import (
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
	dst = appendErrorMember(dst, e, e.Type(), responseID)
	return append(dst, '}')
}

// AppendOpenAIError is AppendError with OpenAI's own words for the type, by
// which clients decide whether to try again: server_error where it is no fault
// of the request's, and the backend's own where it gave one.
func AppendOpenAIError(dst []byte, e *event.Error, responseID string) []byte {
	kind := e.Type()
	switch kind {
	case "api_error", "timeout_error", "overloaded_error":
		kind = "server_error"
	}
	if e.Code == event.CodeUpstreamError && len(e.Upstream) > 0 {
		if own := json.NewCursor(e.Upstream).Field("type"); len(own) > 0 {
			kind = json.Unquote(own)
		}
	}
	dst = append(dst, '{')
	dst = appendErrorMember(dst, e, kind, responseID)
	return append(dst, '}')
}

// AppendAnthropicError appends an error in the shape of Anthropic's, which
// wraps the same object: {"type":"error","error":{…}}.
func AppendAnthropicError(dst []byte, e *event.Error, responseID string) []byte {
	dst = append(dst, `{"type":"error",`...)
	dst = appendErrorMember(dst, e, e.Type(), responseID)
	return append(dst, '}')
}

func appendErrorMember(dst []byte, e *event.Error, kind, responseID string) []byte {
	dst = append(dst, `"error":{"type":"`...)
	dst = json.Append(dst, kind)
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
	if len(e.Upstream) > 0 {
		// It comes from outside and must not break a frame.
		name := append(dst, `,"upstream":`...)
		if upstream, ok := json.AppendCompact(name, e.Upstream); ok {
			dst = upstream
		}
	}
	return append(dst, '}')
}
