package provider

import (
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

// isBlatant reports whether an event says by its own words that the response has
// failed: by its name or type, or by a member error that is not empty. Whatever
// else it carries, it is an error.
func isBlatant(ev sse.Event) bool {
	if string(ev.Name) == "error" {
		return true
	}
	c := json.MakeCursor(ev.Data)
	failed := false
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "error":
			failed = isError(c.Raw()) || failed
		case "type", "object":
			failed = string(c.Str()) == "error" || failed
		default:
			c.Skip()
		}
	}
	return failed && c.End()
}

// complaint is what an event says that is no output but may be an error, in the
// words of many backends and of the gateways before them.
type complaint struct {
	found   bool // it is one without doubt
	choices bool // it is a chunk of an answer
	message bool
	code    bool
}

// isComplaint reports whether an event that carries nothing else reports an
// error: in the way that isBlatant knows, or by one of the members that stand
// for an error elsewhere.
func isComplaint(ev sse.Event) bool {
	if isBlatant(ev) {
		return true
	}
	c := json.MakeCursor(ev.Data)
	var it complaint
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		it.read(&c)
	}
	return c.End() && (it.found || it.message && it.code && !it.choices)
}

// read reads a member of the event.
func (it *complaint) read(c *json.Cursor) {
	switch string(c.Key()) {
	case "error_type", "error_message", "error_msg", "detail", "errors":
		it.found = isError(c.Raw()) || it.found
	case "error_code":
		it.found = isErrorCode(c.Raw()) || it.found
	case "base_resp": // MiniMax
		it.found = isErrorCode(memberOf(c.Raw(), "status_code")) || it.found
	case "message", "msg":
		it.message = len(c.Str()) > 0 || it.message
	case "code":
		it.code = isErrorCode(c.Raw())
	case "choices":
		it.choices = isError(c.Raw()) // it is not empty
	default:
		c.Skip()
	}
}

// isError reports whether the value of an error member stands for an error: it
// is not empty. Many servers send the member with every event.
func isError(raw []byte) bool {
	switch strings.Trim(view(raw), "{}[]\"\u0020\t\r\n") {
	case "", "null", "false", "0":
		return false
	}
	return true
}

// isErrorCode is isError for a code, of which some stand for success.
func isErrorCode(raw []byte) bool {
	text := strings.ToLower(strings.Trim(view(raw), `"`))
	switch text {
	case "ok", "success":
		return false
	}
	n, err := strconv.ParseFloat(text, 64)
	return isError(raw) && (err != nil || n < 200 || n > 299)
}

// memberOf returns the value of a member of an object, nil where there is none.
func memberOf(object []byte, name string) (value []byte) {
	c := json.MakeCursor(object)
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		if string(c.Key()) == name {
			value = c.Raw()
		} else {
			c.Skip()
		}
	}
	return value
}

// What is kept of an error, in bytes: of the object as it came, else of its
// message.
const (
	maxErrorObject  = 16 << 10
	maxErrorMessage = 2 << 10
)

// upstreamError returns the error that an event reports. It shares no memory
// with the event.
func upstreamError(ev sse.Event) *event.Error {
	if !json.IsValue(ev.Data) {
		return upstreamFailure(string(ev.Data), http.StatusBadGateway, nil)
	}
	whole := gjson.ParseBytes(ev.Data)
	object := whole.Get("error")
	if !isError([]byte(object.Raw)) {
		object = whole // the event is the error
	}
	status := namedStatus(object)
	if status == 0 {
		status = namedStatus(whole)
	}
	if status == 0 {
		status = http.StatusBadGateway
	}
	if !object.IsObject() {
		return upstreamFailure(object.String(), status, nil)
	}
	message := firstString(object, "message", "error_message", "error_msg", "msg", "error", "detail",
		"errors.0.message", "base_resp.status_msg")
	return upstreamFailure(message, status, errorObject(object, message))
}

// upstreamFailure returns the error with a message of the provider's, which may
// be empty, and its error object, which is made of the message where it is nil.
func upstreamFailure(message string, status int, object []byte) *event.Error {
	message = cut(strings.ToValidUTF8(message, "\uFFFD"), maxErrorMessage)
	if object == nil {
		object = appendMember([]byte{'{'}, "message", message)
		object = append(object, '}')
	}
	if message == "" {
		message = "the upstream reported an error"
	}
	return &event.Error{Code: event.CodeUpstreamError, Status: status, Message: message, Upstream: object}
}

// generationFailed is the error for a finish reason that means that the
// generation has failed.
func generationFailed(reason string) *event.Error {
	object := appendMember([]byte{'{'}, "finish_reason", reason)
	return upstreamFailure("the generation has failed: "+reason, http.StatusBadGateway, append(object, '}'))
}

// errorObject returns an error object as JSON on one line. Of one that is too
// large, or in which something was left out, it has type, code and message.
func errorObject(object gjson.Result, message string) []byte {
	if compact, ok := json.AppendCompact(nil, []byte(object.Raw)); ok && len(compact) <= maxErrorObject {
		return compact
	}
	b := []byte{'{'}
	for _, name := range []string{"type", "code"} {
		if value := object.Get(name).String(); value != "" && !json.IsElided([]byte(value)) {
			b = append(appendMember(b, name, cut(strings.ToValidUTF8(value, "\uFFFD"), maxWord)), ',')
		}
	}
	b = appendMember(b, "message", cut(strings.ToValidUTF8(message, "\uFFFD"), maxErrorMessage))
	return append(b, '}')
}

// appendMember appends a member that is a string.
func appendMember(b []byte, name, value string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":"`...)
	return append(json.Append(b, value), '"')
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
		if value := object.Get(field); value.Type == gjson.String && value.Str != "" && !json.IsElided([]byte(value.Str)) {
			return value.Str
		}
	}
	return ""
}
