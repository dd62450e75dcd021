package provider_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// messageEvents puts JSON objects into events that are named by their type.
func messageEvents(objects ...string) string {
	var body strings.Builder
	for _, object := range objects {
		_, kind, _ := strings.Cut(object, `"type":"`)
		kind, _, _ = strings.Cut(kind, `"`)
		fmt.Fprintf(&body, "event: %s\ndata: %s\n\n", kind, object)
	}
	return body.String()
}

const (
	messageStart = `{"type":"message_start","message":{"id":"msg","model":"claude","usage":{"input_tokens":17,"output_tokens":1}}}`
	textStart    = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	textHi       = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`
	blockStop    = `{"type":"content_block_stop","index":0}`
	messageDelta = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`
	messageStop  = `{"type":"message_stop"}`
)

func TestMessageUsageIsPutTogetherFromStartAndEnd(t *testing.T) {
	t.Parallel()
	r := newReader("")
	a := answerOf(readAll(t, r, []byte(messageEvents(messageStart, textStart, `{"type":"ping"}`, textHi, blockStop, messageDelta, messageStop)), whole))
	want := &event.Result{Finish: event.FinishStop, ProviderFinish: "end_turn", Usage: &event.TokenUsage{Input: 17, Output: 5}}
	if a.text != "Hi" || !reflect.DeepEqual(a.result, want) {
		t.Errorf("%+v, result %+v", a, a.result)
	}
	if r.Model() != "claude" || r.ResponseID() != "msg" {
		t.Errorf("model %q, id %q", r.Model(), r.ResponseID())
	}
}

func TestSecondMessageStartGoesOnWithTheSameResponse(t *testing.T) {
	t.Parallel()
	tool := `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"%s","name":"f","input":{}}}`
	args := `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`
	a := answerOf(readString(t, "", messageEvents(messageStart, textStart, textHi, blockStop, fmt.Sprintf(tool, "a"), args,
		messageStart, fmt.Sprintf(tool, "b"), args, textStart, textHi, blockStop, messageDelta, messageStop)))
	if want := []call{{"a", "f", "{}"}, {"b", "f", "{}"}}; a.text != "HiHi" || !reflect.DeepEqual(a.calls, want) {
		t.Errorf("text %q, calls %q", a.text, a.calls)
	}
}

func TestOnlyTheClientsToolsAreToolCalls(t *testing.T) {
	t.Parallel()
	start := func(index int, block string) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, block)
	}
	args := func(index int, text string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, index, text)
	}
	a := answerOf(readString(t, "", messageEvents(messageStart,
		start(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), args(0, `{"q":1}`),
		start(1, `{"type":"web_search_tool_result","content":[{"text":"no"}]}`),
		start(2, `{"type":"tool_use","id":"a","name":"f","input":{}}`), args(2, ""), args(2, `{"x"`), args(2, ":1}"),
		start(3, `{"type":"mcp_tool_use","id":"m","name":"ask","input":{}}`), args(3, `{"q":2}`),
		start(4, `{"type":"tool_use","id":"b","name":"g","input":{ "y": "\"" },"caller":{}}`), args(4, `{"z":3}`),
		start(5, `{"type":"tool_use","id":"c","name":"h"}`),
		start(5, `{"type":"server_tool_use","id":"t","name":"code"}`), args(5, `{"q":3}`),
		args(9, "lost"), messageDelta, messageStop)))
	want := []call{{"a", "f", `{"x":1}`}, {"b", "g", `{"y":"\""}`}, {"c", "h", ""}}
	if a.text != "" || !reflect.DeepEqual(a.calls, want) {
		t.Errorf("text %q, calls %q, want %q", a.text, a.calls, want)
	}
	if a.result == nil || a.result.Finish != event.FinishToolCalls {
		t.Errorf("result %+v", a.result)
	}
}

func TestBlocksMayStartWithText(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", messageEvents(messageStart,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"R"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"S"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"x"}}`,
		`{"type":"content_block_start","index":2,"content_block":{"text":"T","type":"text"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"text":"U","type":"text_delta"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"text":"no"}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"compaction_delta","content":"no"}}`,
		`{"type":"something_new","text":"no"}`,
		messageDelta, messageStop)))
	if a.reasoning != "RS" || a.text != "TU" || a.result == nil {
		t.Errorf("%+v", a)
	}
}

func TestRefusalOfAMessageCarriesItsExplanation(t *testing.T) {
	t.Parallel()
	for details, want := range map[string]string{
		`null`: "", `{"type":"refusal","explanation":null}`: "", `{"explanation":"no\n"}`: "no\n",
	} {
		a := answerOf(readString(t, "", messageEvents(messageStart,
			`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":`+details+`}}`, messageStop)))
		if a.refusal != want || a.result == nil || a.result.Finish != event.FinishContentFilter {
			t.Errorf("%s: %+v", details, a)
		}
	}
}

func TestMessageErrorsNeedNoWrapper(t *testing.T) {
	t.Parallel()
	for _, chunk := range []string{
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
		"event: error\ndata: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
		"event: error\ndata: {\"type\":\"overloaded_error\",\"message\":\"x\"}\n\n",
		"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
	} {
		a := answerOf(readString(t, "", messageEvents(messageStart, textStart, textHi)+chunk+messageEvents(messageStop)))
		if a.text != "Hi" || a.err == nil || a.err.Status != 529 || a.err.Message != "x" {
			t.Errorf("%q: %+v", chunk, a)
		}
	}
}

func TestBrokenEventsCountByTheirNames(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body    string
		skipped int
		err     event.Code
	}{
		"start":            {"event: message_start\ndata: {\n\n" + messageEvents(textStart, textHi, messageDelta, messageStop), 1, ""},
		"two of no output": {messageEvents(messageStart, textStart, textHi) + "event: content_block_stop\ndata: {\n\nevent: message_delta\ndata: {\n\n" + messageEvents(messageStop), 2, ""},
		"end":              {messageEvents(messageStart, textStart, textHi, messageDelta) + "event: message_stop\ndata: {\n\n", 0, ""},
		"end, empty":       {messageEvents(messageStart, textStart, textHi) + "event: message_stop\ndata:\n\n", 0, ""},
		"delta":            {messageEvents(messageStart, textStart, textHi) + "event: content_block_delta\ndata: {\n\n" + messageEvents(messageStop), 0, event.CodeInvalidUpstream},
		"unknown":          {messageEvents(messageStart, textStart, textHi) + "event: other\ndata: {\n\n" + messageEvents(messageStop), 0, event.CodeInvalidUpstream},
	} {
		r := newReader("")
		a := answerOf(readAll(t, r, []byte(tt.body), whole))
		if a.text != "Hi" || r.Skipped() != tt.skipped || (a.result != nil) != (tt.err == "") {
			t.Errorf("%s: skipped %d, %+v", name, r.Skipped(), a)
		}
		if a.err != nil && a.err.Code != tt.err {
			t.Errorf("%s: %v", name, a.err)
		}
	}
}

func TestMessageIsCompleteWithItsStopReason(t *testing.T) {
	t.Parallel()
	if a := answerOf(readString(t, "", messageEvents(messageStart, textStart, textHi, blockStop))); a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
		t.Errorf("without: %+v", a)
	}
	if a := answerOf(readString(t, "", messageEvents(messageStart, textStart, textHi, messageDelta))); a.result == nil {
		t.Errorf("with: %+v", a)
	}
}

func TestLegacyCompletionEndsWithItsStopReason(t *testing.T) {
	t.Parallel()
	r := newReader("/v1/complete")
	a := answerOf(readAll(t, r, []byte(messageEvents(
		`{"type":"completion","id":"compl","completion":" Li","stop_reason":null,"model":"claude-2"}`,
		`{"type":"completion","completion":"ght","stop_reason":null}`,
		`{"type":"completion","completion":"","stop_reason":"max_tokens"}`)), whole))
	if a.text != " Light" || a.result == nil || a.result.Finish != event.FinishLength || r.Model() != "claude-2" || r.ResponseID() != "compl" {
		t.Errorf("%+v, model %q", a, r.Model())
	}
}
