package provider_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

const responsesPath = "/v1/responses"

// responsesBody puts events together that have no names.
func responsesBody(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

const (
	responsesCreated   = `{"type":"response.created","response":{"id":"r","model":"m","status":"in_progress","error":null}}`
	responsesText      = `{"type":"response.output_text.delta","output_index":0,"delta":"T"}`
	responsesCompleted = `{"type":"response.completed","response":{"id":"r","status":"completed","usage":{"input_tokens":1,"output_tokens":2}}}`
)

func TestResponsesReadOnlyDeltas(t *testing.T) {
	t.Parallel()
	r := newReader(responsesPath)
	a := answerOf(readAll(t, r, []byte(responsesBody(
		responsesCreated,
		`{"type":"response.content_part.added","part":{"type":"output_text","text":""}}`,
		`{"type":"response.reasoning_summary_text.delta","delta":"R1"}`,
		`{"type":"response.reasoning_text.delta","delta":"R2"}`,
		`{"type":"response.reasoning_text.done","text":"R2"}`,
		responsesText,
		`{"type":"response.code_interpreter_call_code.delta","delta":"no"}`,
		`{"type":"response.mcp_call_arguments.delta","delta":"no"}`,
		`{"type":"response.refusal.delta","delta":"F"}`,
		`{"type":"response.output_text.done","text":"T"}`,
		`{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"T"}]}}`,
		`{"type":"keepalive","sequence_number":9}`,
		responsesCompleted,
	)), whole))
	want := &event.Result{Finish: event.FinishStop, ProviderFinish: "completed", Usage: &event.TokenUsage{Input: 1, Output: 2}}
	if a.text != "T" || a.reasoning != "R1R2" || a.refusal != "F" || !reflect.DeepEqual(a.result, want) {
		t.Errorf("%+v, result %+v", a, a.result)
	}
	if r.Model() != "m" || r.ResponseID() != "r" {
		t.Errorf("model %q, id %q", r.Model(), r.ResponseID())
	}
}

func TestResponsesToolCalls(t *testing.T) {
	t.Parallel()
	added := `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":""}}`
	delta := `{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"i","delta":"{}"}`
	argsDone := `{"type":"response.function_call_arguments.done","output_index":1,"item_id":"i","arguments":"{}"}`
	itemDone := `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"{}"}}`
	one := []call{{"c", "f", "{}"}}
	for name, tt := range map[string]struct {
		events []string
		want   []call
	}{
		"deltas":             {[]string{added, delta, argsDone, itemDone}, one},
		"LM Studio":          {[]string{added, argsDone, itemDone}, one},
		"only with the item": {[]string{added, itemDone}, one},
		"only the item":      {[]string{itemDone}, one},
		"no index":           {[]string{noOutputIndex(added), noOutputIndex(delta), noOutputIndex(itemDone)}, one},
		"ids that change":    {[]string{added, strings.ReplaceAll(delta, `"i"`, `"j"`), strings.ReplaceAll(itemDone, `"i"`, `"k"`)}, one},
		"nobody's arguments": {[]string{delta, argsDone}, nil},
		"two at once": {[]string{
			added, strings.ReplaceAll(added, `_index":1`, `_index":2`), strings.ReplaceAll(delta, `_index":1`, `_index":2`), delta,
		}, []call{one[0], one[0]}},
		"custom": {[]string{
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"custom_tool_call","call_id":"c","name":"f","input":""}}`,
			`{"type":"response.custom_tool_call_input.delta","output_index":1,"delta":"SELECT"}`,
			`{"type":"response.custom_tool_call_input.done","output_index":1,"input":"SELECT"}`,
		}, []call{{"c", "f", "SELECT"}}},
		"the provider's own": {[]string{
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"mcp_call","id":"i","name":"f","arguments":""}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"web_search_call","id":"i"}}`,
		}, nil},
	} {
		a := answerOf(readString(t, responsesPath, responsesBody(append(tt.events, responsesCompleted)...)))
		if !reflect.DeepEqual(a.calls, tt.want) {
			t.Errorf("%s: %+v", name, a.calls)
		}
		if wantTools := len(tt.want) > 0; a.result == nil || (a.result.Finish == event.FinishToolCalls) != wantTools {
			t.Errorf("%s: %+v", name, a.result)
		}
	}
}

func noOutputIndex(chunk string) string { return strings.ReplaceAll(chunk, `"output_index":1,`, "") }

func TestOnlyTheLastToolCallsAreRemembered(t *testing.T) {
	t.Parallel()
	const calls = 1000
	var events []string
	for i := range calls {
		index := strconv.Itoa(i)
		events = append(events,
			`{"type":"response.output_item.added","output_index":`+index+`,"item":{"type":"function_call","call_id":"c`+index+`","name":"f"}}`,
			`{"type":"response.function_call_arguments.delta","output_index":`+index+`,"delta":"`+index+`"}`)
	}
	late := `{"type":"response.function_call_arguments.delta","output_index":0,"delta":"late"}`
	a := answerOf(readString(t, responsesPath, responsesBody(append(events, late, responsesCompleted)...)))
	if len(a.calls) != calls || a.result == nil {
		t.Fatalf("%d calls, %+v", len(a.calls), a.err)
	}
	for i, c := range a.calls {
		if index := strconv.Itoa(i); c.id != "c"+index || c.arguments != index {
			t.Errorf("call %d: %+v", i, c)
		}
	}
}

// case: new-api#7241.
func TestResponsesThatDoNotComplete(t *testing.T) {
	t.Parallel()
	usage := &event.TokenUsage{Input: 3, Output: 4}
	end := func(chunk, status, rest string) string {
		return `{"type":"response.` + chunk + `","response":{"id":"r","status":"` + status + `",` + rest +
			`,"usage":{"input_tokens":3,"output_tokens":4}}}`
	}
	for reason, want := range map[string]event.FinishReason{
		"max_output_tokens": event.FinishLength, "content_filter": event.FinishContentFilter,
	} {
		a := answerOf(readString(t, "", responsesBody(responsesCreated, responsesText,
			end("incomplete", "incomplete", `"error":null,"incomplete_details":{"reason":"`+reason+`"}`))))
		if a.result == nil || a.result.Finish != want || a.result.ProviderFinish != reason || !reflect.DeepEqual(a.result.Usage, usage) {
			t.Errorf("%s: %+v", reason, a.result)
		}
	}
	for name, tt := range map[string]struct {
		chunk  string
		status int
	}{
		"failed":           {end("failed", "failed", `"error":{"code":"server_error","message":"no luck"}`), 500},
		"rate limit":       {end("failed", "failed", `"error":{"code":"rate_limit_exceeded","message":"no luck"}`), 429},
		"without an error": {end("failed", "failed", `"error":null`), 502},
	} {
		r := newReader(responsesPath)
		a := answerOf(readAll(t, r, []byte(responsesBody(responsesCreated, responsesText, tt.chunk)), whole))
		if a.err == nil || a.err.Code != event.CodeUpstreamError || a.err.Status != tt.status || len(a.err.Upstream) > 100 {
			t.Errorf("%s: %+v", name, a.err)
		}
		if !reflect.DeepEqual(r.Usage(), usage) {
			t.Errorf("%s: usage %v", name, r.Usage())
		}
	}
}

func TestResponsesErrorsFlatAndNested(t *testing.T) {
	t.Parallel()
	nested := `{"type":"error","error":{"type":"server_error","message":"no luck"}}`
	flat := `{"type":"error","code":"server_error","message":"no luck","param":null}`
	failed := `{"type":"response.failed","response":{"status":"failed","error":{"message":"again"}}}`
	for _, body := range []string{
		responsesBody(responsesCreated, nested, failed),
		responsesBody(responsesCreated, flat, failed),
		responsesBody(responsesCreated) + "event: error\ndata: " + flat + "\n\n",
		responsesBody(flat, failed),
		responsesBody(nested),
	} {
		r := newReader(responsesPath)
		a := answerOf(readAll(t, r, []byte(body), whole))
		if a.err == nil || a.err.Message != "no luck" || a.err.Status != 500 || r.Format() != "openai-responses" {
			t.Errorf("%q: %+v", body, a.err)
		}
	}
}

func TestResponsesWithoutTheirEndAreTruncated(t *testing.T) {
	t.Parallel()
	for _, path := range []string{responsesPath, ""} {
		a := answerOf(readString(t, path, responsesBody(responsesCreated, responsesText)))
		if a.text != "T" || a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("%q: %+v", path, a)
		}
	}
}

func TestResponsesEventsThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]event.Code{
		"response.created":                      "",
		"response.web_search_call.completed":    "",
		"response.completed":                    "",
		"response.output_text.delta":            event.CodeInvalidUpstream,
		"response.function_call_arguments.done": event.CodeInvalidUpstream,
		"response.failed":                       event.CodeUpstreamError,
	} {
		a := answerOf(readString(t, responsesPath, responsesBody(responsesText)+"event: "+name+"\ndata: {\n\n"+responsesBody(responsesCompleted)))
		if (a.err == nil) != (code == "") || a.err != nil && a.err.Code != code {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
