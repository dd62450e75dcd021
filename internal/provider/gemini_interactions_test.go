package provider_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

const interactionsPath = "/v1beta/interactions"

// interactionsBody puts events together, each with its name twice as the API
// has it. Where the name stands in the data is left to chance there.
func interactionsBody(events ...string) string {
	var b strings.Builder
	for _, chunk := range events {
		name, rest, _ := strings.Cut(chunk, " ")
		b.WriteString("event: " + name + "\ndata: {" + rest + `,"event_type":"` + name + `"}` + "\n\n")
	}
	return b.String()
}

func TestInteractionsSteps(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"steps": interactionsBody(
			`interaction.created "interaction":{"id":"i","model":"m","status":"in_progress"}`,
			`step.start "index":0,"step":{"type":"thought","summary":[{"type":"text","text":"R1"}]}`,
			`step.delta "index":0,"delta":{"type":"thought_summary","content":{"type":"text","text":"R2"}}`,
			`step.delta "index":0,"delta":{"type":"thought_signature","signature":"no"}`,
			`step.stop "index":0`,
			`step.start "index":1,"step":{"type":"model_output","content":[{"type":"text","text":"T1"}]}`,
			`step.delta "index":1,"delta":{"type":"text","text":"T2"}`,
			`step.start "index":2,"step":{"type":"google_search_call","id":"s","name":"no"}`,
			`step.delta "index":2,"delta":{"type":"google_search_call","arguments":{"queries":["no"]}}`,
			`step.start "index":3,"step":{"type":"function_call","id":"a","name":"f","arguments":{}}`,
			`step.start "index":4,"step":{"type":"function_call","id":"b","name":"g"}`,
			`step.delta "index":3,"delta":{"type":"arguments_delta","arguments":"{\"x\":"}`,
			`step.delta "index":4,"delta":{"type":"arguments_delta","arguments":"{}"}`,
			`step.delta "index":3,"delta":{"type":"arguments_delta","arguments":"1}"}`,
			`step.start "index":5,"step":{"type":"function_call","id":"c","name":"h","arguments":{"y": 2}}`,
			`step.delta "index":5,"delta":{"type":"arguments_delta","arguments":"{\"y\":2}"}`,
			`step.delta "index":9,"delta":{"type":"arguments_delta","arguments":"nobody's"}`,
			`interaction.completed "interaction":{"id":"i","status":"requires_action","usage":{"total_input_tokens":3,"total_output_tokens":4}}`,
		) + "event: done\n" + chatDone,
		"contents": interactionsBody(
			`interaction.start "interaction":{"id":"i","model":"m"}`,
			`content.start "index":0,"content":{"type":"thought"}`,
			`content.delta "index":0,"delta":{"type":"thought_summary","content":{"text":"R1R2"}}`,
			`content.delta "index":1,"delta":{"type":"text","text":"T1T2"}`,
			`content.delta "index":2,"delta":{"type":"function_call","id":"a","name":"f","arguments":{"x":1}}`,
			`content.delta "index":3,"delta":{"type":"function_call","id":"b","name":"g","arguments":{}}`,
			`content.delta "index":4,"delta":{"type":"function_call","id":"c","name":"h","arguments":{"y":2}}`,
			`interaction.complete "interaction":{"id":"i","status":"requires_action","usage":{"total_input_tokens":3,"total_output_tokens":4}}`),
	} {
		r := newReader(interactionsPath)
		a := answerOf(readAll(t, r, []byte(body), whole))
		calls := []call{{"a", "f", `{"x":1}`}, {"b", "g", "{}"}, {"c", "h", `{"y":2}`}}
		result := &event.Result{
			Finish: event.FinishToolCalls, ProviderFinish: "requires_action", Usage: &event.TokenUsage{Input: 3, Output: 4},
		}
		if a.reasoning != "R1R2" || a.text != "T1T2" || !reflect.DeepEqual(a.calls, calls) || !reflect.DeepEqual(a.result, result) {
			t.Errorf("%s: %+v, result %+v", name, a, a.result)
		}
		if r.Format() != "gemini-interactions" || r.Model() != "m" || r.ResponseID() != "i" {
			t.Errorf("%s: format %q, model %q, id %q", name, r.Format(), r.Model(), r.ResponseID())
		}
	}
}

func TestInteractionsThatDoNotComplete(t *testing.T) {
	t.Parallel()
	text := interactionsBody(`step.delta "index":1,"delta":{"type":"text","text":"T"}`)
	for body, want := range map[string]event.Code{
		"": event.CodeUpstreamTruncated,
		interactionsBody(`error "error":{"code":"x","message":"no luck"}`):                                              event.CodeUpstreamError,
		interactionsBody(`interaction.completed "interaction":{"status":"failed"}`):                                     event.CodeUpstreamError,
		interactionsBody(`interaction.completed "interaction":{"status":"failed","error":{"code":"x","message":"no"}}`): event.CodeUpstreamError,
		interactionsBody(`interaction.status_update "error":{"message":"no luck"}`):                                     event.CodeUpstreamError,
		"event: step.delta\ndata: {\n\n": event.CodeInvalidUpstream,
	} {
		if a := answerOf(readString(t, "", text+body)); a.text != "T" || a.err == nil || a.err.Code != want {
			t.Errorf("%q: %+v", body, a)
		}
	}
	for body, want := range map[string]event.FinishReason{
		"event: step.stop\ndata: {\n\n" + interactionsBody(`interaction.completed "interaction":{"status":"completed"}`): event.FinishStop,
		interactionsBody(`interaction.completed "interaction":{"status":"cancelled"}`):                                   event.FinishCancelled,
		interactionsBody(`interaction.completed "interaction":{"status":"requires_action"}`):                             event.FinishOther,
		"event: interaction.completed\ndata: {\n\n":                                                                      event.FinishStop,
	} {
		if a := answerOf(readString(t, "", text+body)); a.text != "T" || a.result == nil || a.result.Finish != want {
			t.Errorf("%q: %+v", body, a)
		}
	}
}
