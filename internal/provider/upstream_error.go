package provider

import (
	"bytes"
	stdjson "encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// statusOverloaded is what Anthropic answers when it is overloaded. It has no
// name in net/http.
const statusOverloaded = 529

// errorStatus has the HTTP status that goes with an error's documented type,
// of OpenAI and of Anthropic, and with the exceptions of Bedrock's streams.
var errorStatus = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"insufficient_quota":    http.StatusTooManyRequests,
	"rate_limit_exceeded":   http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"server_error":          http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      statusOverloaded,

	"validationException":         http.StatusBadRequest,
	"modelTimeoutException":       http.StatusRequestTimeout,
	"modelStreamErrorException":   http.StatusFailedDependency,
	"throttlingException":         http.StatusTooManyRequests,
	"internalServerException":     http.StatusInternalServerError,
	"serviceUnavailableException": http.StatusServiceUnavailable,
}

// reportsError reports whether an event says that the response has failed: by
// its name, by an error field that is not empty, or by being an error object
// itself.
func reportsError(ev sse.Event) bool {
	if string(ev.Name) == "error" {
		return true
	}
	if !isJSON(ev.Data) {
		return false
	}
	whole := gjson.Parse(view(ev.Data))
	return isError(whole.Get("error")) ||
		whole.Get("type").String() == "error" || whole.Get("object").String() == "error"
}

// isError reports whether the value of an error field stands for an error.
// Many servers send the field with every event, empty.
func isError(value gjson.Result) bool {
	switch value.Type {
	case gjson.Null, gjson.False:
		return false
	case gjson.String:
		return value.Raw != `""`
	case gjson.JSON:
		return strings.Trim(value.Raw, "{}[] \t\r\n") != ""
	case gjson.Number, gjson.True:
	}
	return true
}

// upstreamError returns the error that an event reports. It shares no memory
// with the event.
func upstreamError(ev sse.Event) *event.Error {
	if !isJSON(ev.Data) {
		return &event.Error{
			Code:     event.CodeUpstreamError,
			Status:   http.StatusBadGateway,
			Message:  messageOr(string(ev.Data)),
			Upstream: wrapMessage(string(ev.Data)),
		}
	}
	whole := gjson.ParseBytes(ev.Data)
	object := whole.Get("error")
	if !isError(object) {
		object = whole // the event is the error
	}
	e := &event.Error{Code: event.CodeUpstreamError, Status: namedStatus(object)}
	if e.Status == 0 {
		e.Status = namedStatus(whole)
	}
	if e.Status == 0 {
		e.Status = http.StatusBadGateway
	}
	if !object.IsObject() {
		e.Message = messageOr(object.String())
		e.Upstream = wrapMessage(object.String())
		return e
	}
	e.Message = messageOr(firstString(object, "message", "error", "detail", "errors.0.message"))
	e.Upstream = compact(object.Raw)
	return e
}

// namedStatus returns the HTTP status that an error object names, by number or
// by a documented type; 0 where it names none.
func namedStatus(object gjson.Result) int {
	if !object.IsObject() {
		return 0
	}
	for _, field := range []string{"code", "status", "status_code"} {
		status, err := strconv.ParseFloat(object.Get(field).String(), 64)
		if err == nil && status >= 400 && status <= 599 {
			return int(status)
		}
	}
	for _, field := range []string{"type", "code"} {
		if status, ok := errorStatus[object.Get(field).String()]; ok {
			return status
		}
	}
	return 0
}

// firstString returns the first of the fields, which are paths of gjson's, that
// is a string and not empty.
func firstString(object gjson.Result, fields ...string) string {
	for _, field := range fields {
		if value := object.Get(field); value.Type == gjson.String && value.String() != "" {
			return value.String()
		}
	}
	return ""
}

// messageOr returns message as valid UTF-8, and one of our own where it is
// empty.
func messageOr(message string) string {
	if message == "" {
		return "the upstream reported an error"
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}

// wrapMessage makes an error object of an error that is none.
func wrapMessage(message string) []byte {
	object := json.Append([]byte(`{"message":"`), message)
	return append(object, `"}`...)
}

// compact returns a valid JSON value without white space, as valid UTF-8.
func compact(raw string) []byte {
	var buf bytes.Buffer
	if err := stdjson.Compact(&buf, []byte(raw)); err != nil {
		return nil // the caller has validated it
	}
	return bytes.ToValidUTF8(buf.Bytes(), []byte("\uFFFD"))
}
