package emit_test

import (
	"net/http"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestAISDKFrames(t *testing.T) {
	begin := []string{`{"type":"start"}`, `{"type":"start-step"}`}
	end := func(reason string) []string {
		return []string{`{"type":"finish-step"}`, `{"type":"finish","finishReason":"` + reason + `"}`, `[DONE]`}
	}
	toolCalls := event.Result{Finish: event.FinishToolCalls}
	for _, test := range []struct {
		name   string
		events []event.Event
		want   []string // between begin and end
		end    []string
	}{
		{
			"text, of the first choice only",
			[]event.Event{text("Hel\n"), ofChoice(1, text("x")), text("lo"), done(event.Result{})},
			[]string{
				`{"type":"text-start","id":"0"}`, `{"type":"text-delta","id":"0","delta":"Hel\n"}`,
				`{"type":"text-delta","id":"0","delta":"lo"}`, `{"type":"text-end","id":"0"}`,
			},
			end("stop"),
		},
		{
			"reasoning, then a refusal in the text",
			[]event.Event{reasoning("hm"), text("I "), refusal("can't"), done(event.Result{Finish: event.FinishContentFilter})},
			[]string{
				`{"type":"reasoning-start","id":"0"}`, `{"type":"reasoning-delta","id":"0","delta":"hm"}`, `{"type":"reasoning-end","id":"0"}`,
				`{"type":"text-start","id":"1"}`, `{"type":"text-delta","id":"1","delta":"I "}`,
				`{"type":"text-delta","id":"1","delta":"can't"}`, `{"type":"text-end","id":"1"}`,
			},
			end("content-filter"),
		},
		{
			"calls, one in fragments over several lines, one without id and input, one between the fragments",
			[]event.Event{
				text("x"), call(0, "a\"", "g\"et", "{\n"), call(1, "", "now", ""), call(2, "c", "f", "[1]"), args(0, "\"a\\n\": 1}"), text("y"), done(toolCalls),
			},
			[]string{
				`{"type":"text-start","id":"0"}`, `{"type":"text-delta","id":"0","delta":"x"}`, `{"type":"text-end","id":"0"}`,
				`{"type":"tool-input-start","toolCallId":"a\"","toolName":"g\"et"}`,
				`{"type":"tool-input-delta","toolCallId":"a\"","inputTextDelta":"{\n"}`,
				`{"type":"tool-input-start","toolCallId":"call_` + responseID + `_1","toolName":"now"}`,
				`{"type":"tool-input-start","toolCallId":"c","toolName":"f"}`,
				`{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"[1]"}`,
				`{"type":"tool-input-delta","toolCallId":"a\"","inputTextDelta":"\"a\\n\": 1}"}`,
				`{"type":"text-start","id":"1"}`, `{"type":"text-delta","id":"1","delta":"y"}`, `{"type":"text-end","id":"1"}`,
				`{"type":"tool-input-available","toolCallId":"a\"","toolName":"g\"et","input":{"a\n":1}}`,
				`{"type":"tool-input-available","toolCallId":"call_` + responseID + `_1","toolName":"now","input":{}}`,
				`{"type":"tool-input-available","toolCallId":"c","toolName":"f","input":[1]}`,
			},
			end("tool-calls"),
		},
		{
			"arguments that are free text are a string",
			[]event.Event{call(0, "a", "sql", "SELECT"), args(0, ` "x"`), done(event.Result{Finish: event.FinishToolCalls})},
			[]string{
				`{"type":"tool-input-start","toolCallId":"a","toolName":"sql"}`,
				`{"type":"tool-input-delta","toolCallId":"a","inputTextDelta":"SELECT"}`,
				`{"type":"tool-input-delta","toolCallId":"a","inputTextDelta":" \"x\""}`,
				`{"type":"tool-input-available","toolCallId":"a","toolName":"sql","input":"SELECT \"x\""}`,
			},
			end("tool-calls"),
		},
		{
			"calls that were cut off",
			[]event.Event{call(0, "a", "f", `{"k":"`), call(1, "b", "g", ""), done(event.Result{Finish: event.FinishLength})},
			[]string{
				`{"type":"tool-input-start","toolCallId":"a","toolName":"f"}`,
				`{"type":"tool-input-delta","toolCallId":"a","inputTextDelta":"{\"k\":\""}`,
				`{"type":"tool-input-start","toolCallId":"b","toolName":"g"}`,
				`{"type":"tool-input-error","toolCallId":"a","toolName":"f","input":"{\"k\":\"","errorText":"the input is not valid JSON"}`,
				`{"type":"tool-input-error","toolCallId":"b","toolName":"g","input":"","errorText":"the input is not valid JSON"}`,
			},
			end("length"),
		},
		{
			"a cancelled response makes no call available",
			[]event.Event{call(0, "a", "f", `{}`), text("x"), done(event.Result{Finish: event.FinishCancelled})},
			[]string{
				`{"type":"tool-input-start","toolCallId":"a","toolName":"f"}`,
				`{"type":"tool-input-delta","toolCallId":"a","inputTextDelta":"{}"}`,
				`{"type":"text-start","id":"0"}`, `{"type":"text-delta","id":"0","delta":"x"}`, `{"type":"text-end","id":"0"}`,
			},
			[]string{`{"type":"abort"}`, `[DONE]`},
		},
		{"nothing but the end", []event.Event{done(event.Result{Finish: event.FinishPause})}, nil, end("other")},
		{
			"error",
			[]event.Event{text("x"), failed(504, event.CodeTotalTimeout, "m\n", "")},
			[]string{`{"type":"text-start","id":"0"}`, `{"type":"text-delta","id":"0","delta":"x"}`},
			[]string{`{"type":"error","errorText":"total_timeout: m\n"}`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := encode(emit.NewAISDK(responseID), test.events...)
			var want []string
			want = append(append(append(want, begin...), test.want...), test.end...)
			if got != dataFrames(want...) {
				t.Errorf("got\n%s\nwant\n%s", got, dataFrames(want...))
			}
			for _, f := range parseFrames(t, got) {
				if f.data != "[DONE]" {
					object(t, f)
				}
			}
		})
	}
}

func TestAISDKHeader(t *testing.T) {
	h := http.Header{}
	emit.NewAISDK(responseID).Header(h)
	if h.Get("X-Vercel-Ai-Ui-Message-Stream") != "v1" || h.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("got %v", h)
	}
}

func BenchmarkAISDK(b *testing.B) {
	benchmarkDelta(b, emit.NewAISDK(responseID), text(" world"))
}
