package provider_test

import (
	"reflect"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestOllamaLines(t *testing.T) {
	t.Parallel()
	r := newReader("/api/chat")
	a := answerOf(readAll(t, r, []byte(
		`{"model":"q","message":{"role":"assistant","content":"","thinking":"R"},"done":false}`+"\n"+
			`{"model":"q","message":{"role":"assistant","content":"T"},"done":false}`+"\r\n\n"+
			`{"model":"q","message":{"content":"","tool_calls":[`+
			`{"function":{"name":"f","arguments":{"city": "Par\u0069s \"é\""}}},`+
			`{"id":"b","function":{"index":1,"name":"g","arguments":{}}}, null]},"done":false}`+"\n"+
			`{"model":"q","message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":21,"eval_count":8}`), whole))
	want := []call{{"", "f", `{"city":"Paris \"é\""}`}, {"b", "g", "{}"}}
	if a.reasoning != "R" || a.text != "T" || !reflect.DeepEqual(a.calls, want) {
		t.Errorf("%+v", a)
	}
	result := &event.Result{Finish: event.FinishToolCalls, ProviderFinish: "stop", Usage: &event.TokenUsage{Input: 21, Output: 8}}
	if !reflect.DeepEqual(a.result, result) || r.Model() != "q" {
		t.Errorf("result %+v, model %q", a.result, r.Model())
	}
}

func TestOllamaGenerateLines(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", `{"response":"","thinking":"R","done":false}`+"\n"+
		`{"response":"T","done":false}`+"\n"+`{"response":"","done":true,"context":[1,2]}`+"\n"))
	if a.reasoning != "R" || a.text != "T" || a.result == nil || a.result.Finish != event.FinishStop || a.result.Usage != nil {
		t.Errorf("%+v", a)
	}
}

func TestOllamaEndsWithAnErrorOrNotAtAll(t *testing.T) {
	t.Parallel()
	line := `{"message":{"content":"T"},"done":false}` + "\n"
	a := answerOf(readString(t, "", line+`{"error":"an error was encountered"}`+"\n"+line))
	if a.text != "T" || a.err == nil || a.err.Code != event.CodeUpstreamError || string(a.err.Upstream) != `{"message":"an error was encountered"}` {
		t.Errorf("error: %+v", a)
	}
	for _, rest := range []string{"", `{"message":{"content":"U"}`} {
		if a := answerOf(readString(t, "", line+rest)); a.text != "T" || a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("%q: %+v", rest, a)
		}
	}
}
