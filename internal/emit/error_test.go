package emit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestAppendError(t *testing.T) {
	for _, test := range []struct {
		name, id  string
		err       event.Error
		openai    string
		anthropic string
	}{
		{
			name: "whole", id: responseID,
			err: event.Error{
				Code: event.CodeUpstreamError, Status: 529, Message: "the \"provider\"\nfailed",
				Upstream: []byte(`{"type":"overloaded_error","message":"Overloaded"}`),
			},
			openai: `{"error":{"type":"api_error","code":"upstream_error","message":"the \"provider\"\nfailed",` +
				`"response_id":"` + responseID + `","upstream":{"type":"overloaded_error","message":"Overloaded"}}}`,
			anthropic: `{"type":"error","error":{"type":"api_error","code":"upstream_error","message":"the \"provider\"\nfailed",` +
				`"response_id":"` + responseID + `","upstream":{"type":"overloaded_error","message":"Overloaded"}}}`,
		},
		{
			name:      "before there is a response",
			err:       event.Error{Code: "queue_full", Status: 429, Message: "the queue is full"},
			openai:    `{"error":{"type":"rate_limit_error","code":"queue_full","message":"the queue is full"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","code":"queue_full","message":"the queue is full"}}`,
		},
		{
			name: "upstream over several lines and not UTF-8",
			err: event.Error{
				Code: event.CodeUpstreamError, Status: 400, Message: "m",
				Upstream: []byte("{\r\n  \"message\" : \"a\xffb\"\n}"),
			},
			openai:    `{"error":{"type":"invalid_request_error","code":"upstream_error","message":"m","upstream":{"message":"a` + "\uFFFD" + `b"}}}`,
			anthropic: `{"type":"error","error":{"type":"invalid_request_error","code":"upstream_error","message":"m","upstream":{"message":"a` + "\uFFFD" + `b"}}}`,
		},
		{
			name:      "upstream that is not JSON",
			err:       event.Error{Code: event.CodeTotalTimeout, Status: 504, Message: "m", Upstream: []byte("}\n\ndata: {")},
			openai:    `{"error":{"type":"timeout_error","code":"total_timeout","message":"m"}}`,
			anthropic: `{"type":"error","error":{"type":"timeout_error","code":"total_timeout","message":"m"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := string(emit.AppendError([]byte(">"), &test.err, test.id)); got != ">"+test.openai {
				t.Errorf("got  %s\nwant >%s", got, test.openai)
			}
			if got := string(emit.AppendAnthropicError([]byte(">"), &test.err, test.id)); got != ">"+test.anthropic {
				t.Errorf("got  %s\nwant >%s", got, test.anthropic)
			}
		})
	}
}

func FuzzAppendError(f *testing.F) {
	f.Add("upstream_error", "message", responseID, []byte(`{"a":1}`), 502)
	f.Add("a\"\n", "b\r\n\r\ndata: x", "c\xff", []byte("{\n\n}"), 429)
	f.Add("", "\u2028", "", []byte("}\n\n{"), -1)
	f.Fuzz(func(t *testing.T, code, message, id string, upstream []byte, status int) {
		e := &event.Error{Code: event.Code(code), Status: status, Message: message, Upstream: upstream}
		for _, body := range []string{
			string(emit.AppendError(nil, e, id)),
			string(emit.AppendAnthropicError(nil, e, id)),
		} {
			if !json.Valid([]byte(body)) || !utf8.ValidString(body) || strings.ContainsAny(body, "\r\n") {
				t.Fatalf("%q", body)
			}
			var got struct {
				Error struct {
					Code, Message string
					ResponseID    string `json:"response_id"`
				}
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if utf8.ValidString(message) && got.Error.Message != message || utf8.ValidString(id) && got.Error.ResponseID != id {
				t.Fatalf("%q", body)
			}
		}
	})
}
