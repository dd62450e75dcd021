package provider_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// assistantsBody puts events together: a name and the data.
func assistantsBody(events ...string) string {
	var b strings.Builder
	for _, chunk := range events {
		name, data, _ := strings.Cut(chunk, " ")
		b.WriteString("event: " + name + "\ndata: " + data + "\n\n")
	}
	return b.String()
}

func TestAssistantsRun(t *testing.T) {
	t.Parallel()
	message := func(content string) string {
		return `thread.message.delta {"id":"m","object":"thread.message.delta","delta":{"content":[` + content + `]}}`
	}
	step := func(calls string) string {
		return `thread.run.step.delta {"object":"thread.run.step.delta","delta":{"step_details":{"type":"tool_calls","tool_calls":[` + calls + `]}}}`
	}
	body := assistantsBody(
		`thread.created {"id":"t","object":"thread"}`,
		`thread.run.created {"id":"r","object":"thread.run","status":"queued","model":"m","usage":null,"last_error":null}`,
		`thread.message.created {"object":"thread.message","content":[]}`,
		message(`{"index":0,"type":"text","text":{"value":"T","annotations":[]}}`),
		message(`{"index":1,"type":"image_file","image_file":{"file_id":"no"}},{"index":2,"type":"refusal","refusal":"F"}`),
		`thread.message.completed {"object":"thread.message","content":[{"type":"text","text":{"value":"T"}}]}`,
		step(`{"index":0,"id":"s","type":"code_interpreter","code_interpreter":{"input":"no"}}`),
		step(`{"index":1,"id":"a","type":"function","function":{"name":"f","arguments":"","output":null}},{"index":2,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`),
		step(`{"index":1,"type":"function","function":{"arguments":"{\"x\":1}"}}`),
		step(`{"index":9,"type":"function","function":{"arguments":"nobody's"}}`),
		`thread.run.requires_action {"id":"r","object":"thread.run","status":"requires_action","usage":{"prompt_tokens":3,"completion_tokens":4}}`,
	)
	want := &event.Result{
		Finish: event.FinishToolCalls, ProviderFinish: "requires_action", Usage: &event.TokenUsage{Input: 3, Output: 4},
	}
	for _, end := range []string{"event: done\n" + chatDone, ""} {
		r := newReader("")
		a := answerOf(readAll(t, r, []byte(body+end), whole))
		if a.text != "T" || a.refusal != "F" || !reflect.DeepEqual(a.calls, []call{{"a", "f", `{"x":1}`}, {"b", "g", "{}"}}) || !reflect.DeepEqual(a.result, want) {
			t.Errorf("%+v, result %+v", a, a.result)
		}
		if r.Format() != "openai-assistants" || r.Model() != "m" || r.ResponseID() != "r" {
			t.Errorf("format %q, model %q, id %q", r.Format(), r.Model(), r.ResponseID())
		}
	}
}

func TestAssistantsRunsThatDoNotComplete(t *testing.T) {
	t.Parallel()
	text := assistantsBody(`thread.message.delta {"object":"thread.message.delta","delta":{"content":[{"text":{"value":"T"}}]}}`)
	run := func(status, rest string) string {
		return assistantsBody(`thread.run.` + status + ` {"object":"thread.run","status":"` + status + `"` + rest + `}`)
	}
	for body, want := range map[string]event.Code{
		"":                     event.CodeUpstreamTruncated,
		run("in_progress", ""): event.CodeUpstreamTruncated,
		run("failed", ""):      event.CodeUpstreamError,
		assistantsBody(`error {"error":{"message":"no luck"}}`):                    event.CodeUpstreamError,
		run("failed", `,"last_error":{"code":"server_error","message":"no luck"}`): event.CodeUpstreamError,
		assistantsBody(`thread.message.delta {`):                                   event.CodeInvalidUpstream,
		assistantsBody(`thread.run.failed {`):                                      event.CodeInvalidUpstream,
	} {
		a := answerOf(readString(t, "/v1/threads/t/runs", text+body))
		if a.text != "T" || a.err == nil || a.err.Code != want {
			t.Errorf("%q: %+v", body, a)
		}
		if strings.Contains(body, "server_error") && a.err.Status != 500 {
			t.Errorf("%q: status %d", body, a.err.Status)
		}
	}
	for body, want := range map[string]string{
		run("incomplete", `,"incomplete_details":{"reason":"max_completion_tokens"}`): "max_completion_tokens",
		run("incomplete", ""): "incomplete",
		run("expired", ""):    "expired",
		run("cancelled", ""):  "cancelled",
		assistantsBody(`thread.run.completed {`, `done [DONE]`): "",
	} {
		if a := answerOf(readString(t, "", text+body)); a.result == nil || a.result.ProviderFinish != want {
			t.Errorf("%q: %+v", body, a)
		}
	}
}
