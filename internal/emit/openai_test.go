package emit_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

const (
	chunkID   = `"id":"chatcmpl-` + responseID + `"`
	chunkHead = `{` + chunkID + `,"object":"chat.completion.chunk","created":1700000000,"model":"gpt-\"x\"",`
	roleChunk = chunkHead + `"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`
)

func newOpenAI() *emit.OpenAI {
	return emit.NewOpenAI(emit.OpenAIOptions{
		ResponseID: responseID, Model: `gpt-"x"`, Created: time.Unix(1700000000, 0), IncludeUsage: true,
	})
}

// dataFrames returns the stream of frames that have data only.
func dataFrames(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

// chunkDelta is a chunk of the first choice.
func chunkDelta(delta string) string {
	return chunkHead + `"choices":[{"index":0,"delta":{` + delta + `},"finish_reason":null}]}`
}

func chunkFinish(reason string) string {
	return chunkHead + `"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func TestOpenAIFrames(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []event.Event
		want   []string
	}{
		{
			"text",
			[]event.Event{text("Hel\n"), text("lo"), done(event.Result{Usage: &event.TokenUsage{Input: 12, Output: 34}})},
			[]string{
				roleChunk, chunkDelta(`"content":"Hel\n"`), chunkDelta(`"content":"lo"`), chunkFinish("stop"),
				chunkHead + `"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46}}`, "[DONE]",
			},
		},
		{
			"one count alone has no total",
			[]event.Event{done(event.Result{Usage: &event.TokenUsage{Input: -1, Output: 3}})},
			[]string{roleChunk, chunkFinish("stop"), chunkHead + `"choices":[],"usage":{"completion_tokens":3}}`, "[DONE]"},
		},
		{
			"reasoning and refusal",
			[]event.Event{reasoning("hm"), refusal("no"), done(event.Result{Finish: event.FinishContentFilter})},
			[]string{
				roleChunk, chunkDelta(`"reasoning_content":"hm"`), chunkDelta(`"refusal":"no"`), chunkFinish("content_filter"), "[DONE]",
			},
		},
		{
			"tool calls",
			[]event.Event{
				call(0, "call_\"1", "get", `{"a`), args(0, `":1}`), call(1, "", "now", "{}"), done(event.Result{Finish: event.FinishToolCalls}),
			},
			[]string{
				roleChunk,
				chunkDelta(`"tool_calls":[{"index":0,"id":"call_\"1","type":"function","function":{"name":"get","arguments":"{\"a"}}]`),
				chunkDelta(`"tool_calls":[{"index":0,"function":{"arguments":"\":1}"}}]`),
				chunkDelta(`"tool_calls":[{"index":1,"id":"call_` + responseID + `_1","type":"function","function":{"name":"now","arguments":"{}"}}]`),
				chunkFinish("tool_calls"), "[DONE]",
			},
		},
		{
			"calls without arguments get an object",
			[]event.Event{
				call(0, "a", "x", ""), call(1, "b", "y", ""), args(1, "{}"), done(event.Result{Finish: event.FinishToolCalls}),
			},
			[]string{
				roleChunk,
				chunkDelta(`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"x","arguments":""}}]`),
				chunkDelta(`"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"y","arguments":""}}]`),
				chunkDelta(`"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]`),
				chunkDelta(`"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`),
				chunkFinish("tool_calls"), "[DONE]",
			},
		},
		{
			"but not those that were cut off",
			[]event.Event{call(0, "a", "x", ""), done(event.Result{Finish: event.FinishLength})},
			[]string{
				roleChunk,
				chunkDelta(`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"x","arguments":""}}]`),
				chunkFinish("length"), "[DONE]",
			},
		},
		{
			"several choices",
			[]event.Event{
				text("a"), ofChoice(2, text("x")), ofChoice(2, call(0, "", "f", "{}")), text("b"),
				done(event.Result{Choices: []event.ChoiceFinish{{Choice: 0, Finish: event.FinishStop}, {Choice: 2, Finish: event.FinishLength}}}),
			},
			[]string{
				roleChunk, chunkDelta(`"content":"a"`),
				chunkHead + `"choices":[{"index":2,"delta":{"role":"assistant"},"finish_reason":null}]}`,
				chunkHead + `"choices":[{"index":2,"delta":{"content":"x"},"finish_reason":null}]}`,
				chunkHead + `"choices":[{"index":2,"delta":{"tool_calls":[{"index":0,"id":"call_` + responseID + `_2_0","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}]}`,
				chunkDelta(`"content":"b"`), chunkFinish("stop"),
				chunkHead + `"choices":[{"index":2,"delta":{},"finish_reason":"length"}]}`, "[DONE]",
			},
		},
		{
			"nothing but the end",
			[]event.Event{done(event.Result{Finish: event.FinishOther})},
			[]string{roleChunk, chunkFinish("stop"), "[DONE]"},
		},
		{"cancelled is not whole", []event.Event{done(event.Result{Finish: event.FinishCancelled})}, []string{roleChunk, chunkFinish("length"), "[DONE]"}},
		{"pause", []event.Event{done(event.Result{Finish: event.FinishPause})}, []string{roleChunk, chunkFinish("stop"), "[DONE]"}},
		{
			"error",
			[]event.Event{text("x"), failed(503, event.CodeUpstreamError, "m", "")},
			[]string{
				roleChunk, chunkDelta(`"content":"x"`),
				`{"error":{"type":"server_error","code":"upstream_error","message":"m","response_id":"` + responseID + `"}}`,
			},
		},
		{"a fact for readers only", []event.Event{text("x"), {Kind: event.Usage}}, []string{roleChunk, chunkDelta(`"content":"x"`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := encode(newOpenAI(), test.events...)
			if want := dataFrames(test.want...); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, f := range parseFrames(t, got) {
				if f.data != "[DONE]" {
					object(t, f)
				}
			}
		})
	}
}

func TestOpenAIWithoutUsage(t *testing.T) {
	enc := emit.NewOpenAI(emit.OpenAIOptions{ResponseID: responseID})
	got := encode(enc, done(event.Result{Usage: &event.TokenUsage{Input: 1, Output: 2}}))
	if strings.Contains(got, "usage") {
		t.Errorf("usage although the client did not ask for it: %s", got)
	}
}

func TestOpenAICreatedIsNow(t *testing.T) {
	before := time.Now().Unix()
	enc := emit.NewOpenAI(emit.OpenAIOptions{ResponseID: responseID})
	created := object(t, parseFrames(t, encode(enc, text("x")))[0])["created"].(float64)
	if int64(created) < before || int64(created) > time.Now().Unix() {
		t.Errorf("created %v", created)
	}
}

func TestOpenAIModelMayComeLater(t *testing.T) {
	enc := emit.NewOpenAI(emit.OpenAIOptions{ResponseID: responseID})
	enc.SetModel("later")
	frames := parseFrames(t, encode(enc, text("x"), done(event.Result{})))
	for _, i := range []int{0, 2} {
		if model := object(t, frames[i])["model"]; model != "later" {
			t.Errorf("frame %d has the model %v", i, model)
		}
	}
}

func TestOpenAIHeader(t *testing.T) {
	h := http.Header{}
	newOpenAI().Header(h)
	if h.Get("Content-Type") != "text/event-stream; charset=utf-8" || h.Get("X-Response-Id") != responseID {
		t.Errorf("got %v", h)
	}
}

func BenchmarkOpenAI(b *testing.B) {
	benchmarkDelta(b, newOpenAI(), text(" world"))
}
