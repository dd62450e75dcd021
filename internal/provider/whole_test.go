package provider_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// A whole completion says what its stream would have said.
func TestDecodeWhole(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"Hm",
			"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		"/v1/responses": `{"id":"r","object":"response","status":"completed","model":"m","output":[
			{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Hm"}]},
			{"type":"message","id":"ms","role":"assistant","content":[{"type":"output_text","text":"Hi"}]},
			{"type":"function_call","id":"fc","call_id":"t1","name":"f","arguments":"{\"a\":1}"}],"usage":{"input_tokens":3,"output_tokens":2}}`,
		"/v1/messages": `{"id":"x","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hm","signature":"s"},
			{"type":"text","text":"Hi"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":2}}`,
		"/api/chat": `{"model":"m","created_at":"x","message":{"role":"assistant","content":"Hi","thinking":"Hm","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},
			"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}`,
	} {
		events, r := provider.DecodeWhole(provider.Options{Path: path}, []byte(body))
		if r == nil {
			t.Errorf("%s: no completion", path)
			continue
		}
		var text, reasoning, call string
		var result *event.Result
		for _, ev := range events {
			switch ev.Kind {
			case event.Text:
				text += string(ev.Text)
			case event.Reasoning:
				reasoning += string(ev.Text)
			case event.ToolCall:
				call += ev.Tool.Name + string(ev.Text)
			case event.Done:
				result = ev.Result
			case event.Refusal, event.Finish, event.Usage, event.End, event.Failed:
				t.Errorf("%s: an event of kind %d", path, ev.Kind)
			}
		}
		if text != "Hi" || reasoning != "Hm" || call != `f{\"a\":1}` || result == nil || r.Model() != "m" {
			t.Errorf("%s: %q, %q, %q, %+v of %s", path, text, reasoning, call, result, r.Model())
			continue
		}
		if result.Finish != event.FinishToolCalls || result.Usage == nil || result.Usage.Input != 3 || result.Usage.Output != 2 {
			t.Errorf("%s ends with %+v, %+v", path, result, result.Usage)
		}
	}
	for _, body := range []string{`{"queued":true}`, `{"choices":[]}`, `[1]`, `{"choices":[{"message":`, strings.Repeat("[", 10000)} {
		if events, r := provider.DecodeWhole(provider.Options{Path: "/v1/chat/completions"}, []byte(body)); r != nil {
			t.Errorf("%.30s is a completion of %d events", body, len(events))
		}
	}
}
