package provider_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestErrorsNameTheirStatus(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]int{
		`{"code":500}`:   500,
		`{"code":"429"}`: 429,
		`{"status":503}`: 503,
		`{"status_code":400,"type":"server_error","code":"tool_use_failed"}`: 400,
		`{"code":200,"status":"418"}`:                                        418,
		`{"code":600}`:                                                       502,
		`{"code":null}`:                                                      502,
		`{"type":"x"}`:                                                       502,
		`{"type":"invalid_request_error"}`:                                   400,
		`{"type":"authentication_error"}`:                                    401,
		`{"type":"permission_error"}`:                                        403,
		`{"type":"not_found_error"}`:                                         404,
		`{"type":"request_too_large"}`:                                       413,
		`{"type":"rate_limit_error"}`:                                        429,
		`{"type":"insufficient_quota"}`:                                      429,
		`{"code":"insufficient_quota"}`:                                      429,
		`{"type":"api_error"}`:                                               500,
		`{"type":"server_error"}`:                                            500,
		`{"type":"timeout_error"}`:                                           504,
		`{"type":"overloaded_error"}`:                                        529,
		`"busy"`:                                                             502,
	} {
		a := answerOf(readString(t, chatPath, chatChunk+`data: {"error":`+object+"}\n\n"))
		if a.err == nil || a.err.Code != event.CodeUpstreamError || a.err.Status != want || a.err.Message == "" {
			t.Errorf("%s: %+v, want %d", object, a.err, want)
		}
	}
}

func TestErrorsKeepWhatTheProviderSaid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		event, message, upstream string
		status                   int
	}{
		"object":      {`data: {"error": { "message": "no \u00e9\n", "a": [1, 2] }}`, "no é\n", `{"message":"no é\n","a":[1,2]}`, 502},
		"string":      {`data: {"error":"no \"x\" \u003c","code":429}`, `no "x" <`, `{"message":"no \"x\" <"}`, 429},
		"number":      {`data: {"error":7}`, "7", `{"message":"7"}`, 502},
		"wrapped":     {`data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "Overloaded", `{"type":"overloaded_error","message":"Overloaded"}`, 529},
		"unwrapped":   {"event: error\ndata: {\"code\":500,\"message\":\"no\"}", "no", `{"code":500,"message":"no"}`, 500},
		"text":        {"event: error\ndata: Bad Gateway", "Bad Gateway", `{"message":"Bad Gateway"}`, 502},
		"null":        {"event: error\ndata: null", "the upstream reported an error", `{"message":""}`, 502},
		"no message":  {`data: {"error":{"type":"x"}}`, "the upstream reported an error", `{"type":"x"}`, 502},
		"detail":      {`data: {"error":{"detail":"why"}}`, "why", `{"detail":"why"}`, 502},
		"not UTF-8":   {"data: {\"error\":{\"message\":\"a\xff\"}}", "a\uFFFD", "{\"message\":\"a\uFFFD\"}", 502},
		"with choice": {`data: {"choices":[{"delta":{"content":"x"},"finish_reason":"error"}],"error":{"code":502,"message":"gone"}}`, "gone", `{"code":502,"message":"gone"}`, 502},
	} {
		for _, first := range []string{"", chatChunk} {
			a := answerOf(readString(t, chatPath, first+tt.event+"\n\n"+chatFinish+chatDone))
			if a.err == nil || a.err.Message != tt.message || string(a.err.Upstream) != tt.upstream || a.err.Status != tt.status {
				t.Errorf("%s: %+v, upstream %s", name, a.err, a.err.Upstream)
			}
			if want := strings.Contains(tt.event, "content"); strings.HasSuffix(a.text, "x") != want {
				t.Errorf("%s: text %q", name, a.text)
			}
		}
	}
}

func TestErrorFieldsThatAreEmptyAreNoErrors(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"null", "false", `""`, "{}", "[ ]", "{ }"} {
		chunk := `data: {"error":` + value + `,"choices":[{"delta":{"content":"x"}}]}` + "\n\n"
		if a := answerOf(readString(t, chatPath, chunk+chunk+chatFinish)); a.text != "xx" || a.result == nil {
			t.Errorf("%s: %+v", value, a)
		}
		line := `{"error":` + value + `,"response":"x","done":true}` + "\n"
		if a := answerOf(readString(t, "", line)); a.text != "x" || a.result == nil {
			t.Errorf("%s in a line: %+v", value, a)
		}
	}
}

func TestErrorTypesGoWithTheStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
		400: "invalid_request_error", 422: "invalid_request_error", 499: "invalid_request_error",
		500: "api_error", 502: "api_error", 529: "api_error",
	} {
		err := &event.Error{Code: event.CodeUpstreamError, Status: status, Message: "why"}
		if err.Type() != want || err.Error() != "upstream_error: why" {
			t.Errorf("%d: type %q, text %q", status, err.Type(), err.Error())
		}
	}
}
