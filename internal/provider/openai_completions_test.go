package provider_test

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"reflect"
	"testing"
)

const completionsPath = "/v1/completions"

func TestCompletionsOfSeveralChoices(t *testing.T) {
	t.Parallel()
	r := newReader(completionsPath)
	events := readAll(t, r, []byte(
		`data: {"id":"c","object":"text_completion","model":"m","choices":[{"text":"a","index":0,"finish_reason":null},{"index":1,"text":"b"}],"usage":null}`+"\n\n"+
			`data: {"choices":[{"text":"c","finish_reason":"","index":0},{"text":"","index":1,"finish_reason":"length"}]}`+"\n\n"+
			"data: null\n\n"+
			`data: {"choices":[{"text":null,"index":0,"finish_reason":"stop"}],"error":null}`+"\n\n"+
			`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`+"\n\n"+chatDone), whole)
	a, b := choiceOf(events, 0), choiceOf(events, 1)
	want := &event.Result{
		Finish: event.FinishStop, ProviderFinish: "stop",
		Choices: []event.ChoiceFinish{{Choice: 0, Finish: event.FinishStop}, {Choice: 1, Finish: event.FinishLength}},
		Usage:   &event.TokenUsage{Input: 3, Output: 4},
	}
	if a.text != "ac" || b.text != "b" || !reflect.DeepEqual(a.result, want) || r.Model() != "m" || r.ResponseID() != "c" {
		t.Errorf("%q, %q, %+v", a.text, b.text, a.result)
	}
}

func TestCompletionsThatFail(t *testing.T) {
	t.Parallel()
	chunk := `data: {"choices":[{"text":"a","index":0,"finish_reason":null}]}` + "\n\n"
	for rest, want := range map[string]event.Code{
		"":        event.CodeUpstreamTruncated,
		chatError: event.CodeUpstreamError,
		`data: {"choices":[{"text":{"a":1}}]}` + "\n\n":                       event.CodeInvalidUpstream,
		`data: {"choices":[{"text":""},{"text":"","index":100000}]}` + "\n\n": event.CodeInvalidUpstream,
		`data: {"choices":[{"text":"b"` + "\n\n":                              event.CodeInvalidUpstream,
		`data: {"choices":[{"text":"b","finish_reason":"`:                     event.CodeUpstreamTruncated,
		`data: {"choices":{"text":"b","finish_reason":"x"}}` + "\n":           event.CodeUpstreamTruncated,
	} {
		if a := answerOf(readString(t, completionsPath, chunk+rest)); a.text != "a" || a.err == nil || a.err.Code != want {
			t.Errorf("%q: %+v", rest, a)
		}
	}
}

func TestEmptyChoicesAreTakenForTheAPIOfThePath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{completionsPath: "openai-completions", chatPath: "openai-chat", "": "openai-chat"} {
		r := newReader(path)
		if a := answerOf(readAll(t, r, []byte(emptyFirst+chatDone), whole)); a.err == nil || r.Format() != want {
			t.Errorf("%q: format %q, %+v", path, r.Format(), a)
		}
	}
	r := newReader(chatPath) // the content outranks the path
	if r.Feed([]byte(emptyFirst + `data: {"choices":[{"text":"x"}]}` + "\n\n")); r.Format() != "openai-completions" {
		t.Errorf("format %q", r.Format())
	}
}
