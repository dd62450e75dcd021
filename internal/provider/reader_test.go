package provider_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

func TestEventsComeAsSoonAsTheirLastByteIsIn(t *testing.T) {
	t.Parallel()
	r := newReader(chatPath)
	body := chatChunk + chatChunk
	for i := range len(body) {
		events := r.Feed([]byte{body[i]})
		complete := i == len(chatChunk)-1 || i == len(body)-1
		if got := len(events) == 1; got != complete {
			t.Errorf("byte %d of %d: %d events", i+1, len(body), len(events))
		}
	}
}

// cases: envoyproxy/ai-gateway#2463, aisix#111.
func TestTextDoesNotDependOnLineEndsOrCuts(t *testing.T) {
	t.Parallel()
	const text = "Hé, 世界 😀"
	transcript := `data:{"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n: hi\n" + chatFinish + chatDone
	for _, end := range []string{"\n", "\r\n", "\r"} {
		body := strings.ReplaceAll(transcript, "\n", end)
		for cut := range len(body) {
			sizes := []int{cut, len(body)}
			split := func(left int) int {
				if left == len(body) && sizes[0] > 0 {
					return sizes[0]
				}
				return left
			}
			if a := answerOf(readAll(t, newReader(""), []byte(body), split)); a.text != text || a.result == nil {
				t.Errorf("line end %q, cut at %d: %+v", end, cut, a)
			}
		}
	}
}

func TestInvalidUTF8BecomesOneReplacement(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", `data: {"choices":[{"delta":{"content":"a`+"\xe4\xb8"+`b"}}]}`+"\n\n"+chatFinish))
	if a.text != "a\uFFFDb" || a.result == nil {
		t.Errorf("%+v", a)
	}
}

// case: nodeskclaw#27.
func TestSeveralDataLinesAreOneEvent(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", "data: {\"choices\":\ndata: [{\"delta\":\ndata: {\"content\":\"x\"}}]}\n\n"+chatFinish))
	if a.text != "x" || a.result == nil {
		t.Errorf("%+v", a)
	}
}

// cases: openai-go#368, ragflow#15381.
func TestEventsOfAnySizeUpToTheLimitPass(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	chunk := func(size int) string {
		start, end := `{"choices":[{"delta":{"content":"`, `"}}]}`
		return "data: " + start + strings.Repeat("x", size-len(start)-len(end)) + end + "\n\n"
	}
	for _, first := range []string{"", chatChunk} {
		for _, size := range []int{64<<10 + 1, 1<<20 + 1, limit, limit + 1} {
			r := provider.NewReader(provider.Options{ContentType: "text/event-stream", MaxEvent: limit})
			events := readAll(t, r, []byte(first+chunk(size)+chatFinish), func(int) int { return 32 << 10 })
			a := answerOf(events)
			switch {
			case size > limit && (a.err == nil || a.err.Code != event.CodeEventTooLarge || a.err.Status != 502):
				t.Errorf("%d bytes: %+v", size, a.err)
			case size <= limit && (a.result == nil || len(a.text) < size-100):
				t.Errorf("%d bytes: %d of text, %+v", size, len(a.text), a.err)
			}
		}
	}
}

func TestEventsThatCannotBeDecodedFailTheResponse(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"choices":[{"delta":{"content":"Hel`,
		`{"choices":[{"delta":{"content":"Hello"}}]`,
		`{"choices":[{"delta":{"content":"Hello"}}]}}`,
		`{"choices":[{"delta":{"content":5}}]}`,
		`{"choices":{"a":1}}`,
		`{"choices":[{"index":0,"delta":{}},{"index":1000000,"delta":{"content":"x"}}]}`,
		`Hello`, `"Hello"`, `5`, `[5]`,
	} {
		a := answerOf(readString(t, "", chatChunk+"data: "+data+"\n\n"+chatFinish+chatDone))
		if a.text != "Hi" || a.err == nil || a.err.Code != event.CodeInvalidUpstream || a.err.Status != 502 {
			t.Errorf("%s: %+v", data, a)
		}
	}
	line := `{"response":"x","done":false}` + "\n"
	if a := answerOf(readString(t, "", line+"{\"response\":\n"+line)); a.err == nil || a.err.Code != event.CodeInvalidUpstream {
		t.Errorf("a line: %+v", a)
	}
}

func TestLastEventIsTakenWithoutItsTerminatorIfItIsWhole(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", chatChunk+strings.TrimSpace(chatFinish)))
	if a.text != "Hi" || a.result == nil {
		t.Errorf("whole: %+v", a)
	}
	a = answerOf(readString(t, "", chatChunk+chatChunk[:len(chatChunk)-8]))
	if a.text != "Hi" || a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
		t.Errorf("cut off: %+v", a)
	}
	// Half an event is never a good end, and neither is an aborted body.
	for _, half := range []string{"data: [DO", "data: {\"id", "dat", "event: done\n"} {
		a = answerOf(readString(t, "", chatChunk+chatFinish+half))
		if a.text != "Hi" || a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("the end cut off at %q: %+v", half, a)
		}
	}
	r := newReader("")
	r.Feed([]byte(chatChunk + chatFinish))
	if events := r.Close(false); len(events) != 1 || events[0].Err == nil || events[0].Err.Code != event.CodeUpstreamTruncated {
		t.Errorf("aborted after the finish: %+v", events)
	}
}

func TestNullAndEmptyDataAreIgnored(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", chatChunk+"data: null\n\n"+"data:\n\n"+"data: {}\n\n"+chatChunk+chatFinish))
	if a.text != "HiHi" || a.result == nil {
		t.Errorf("%+v", a)
	}
}

// cases: CLIProxyAPI#4905 and #5028.
func TestBodyIsCompleteOnlyIfEveryChoiceHasFinished(t *testing.T) {
	t.Parallel()
	role := `data: {"choices":[{"index":1,"delta":{"role":"assistant"}}]}` + "\n\n"
	finish1 := `data: {"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}` + "\n\n"
	blank := `data: {"id":"","model":"","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}` + "\n\n"
	for name, tt := range map[string]struct {
		body string
		done bool
	}{
		"no finish":                {chatChunk, false},
		"a blank chunk, as Ollama": {chatChunk + blank, false},
		"finish":                   {chatChunk + chatFinish, true},
		"one of two":               {chatChunk + role + chatFinish, false},
		"both":                     {chatChunk + role + finish1 + chatFinish, true},
		"DONE without any":         {chatChunk + role + chatDone, true},
	} {
		a := answerOf(readString(t, chatPath, tt.body))
		if (a.result != nil) != tt.done || (a.err != nil && a.err.Code != event.CodeUpstreamTruncated) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestFinishedResponseCanBeEndedWithoutTheProvidersEnd(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\n"
	r := newReader(chatPath)
	if r.Feed([]byte(chatChunk)); r.Finished() {
		t.Error("finished before the finish")
	}
	if events := r.Feed([]byte(chatFinish + usage)); len(events) != 0 || !r.Finished() {
		t.Errorf("%d events, finished: %v", len(events), r.Finished())
	}
	events := r.Finish()
	if len(events) != 1 || events[0].Kind != event.Done || *events[0].Result.Usage != (event.TokenUsage{Input: 3, Output: 4}) {
		t.Fatalf("%+v", events)
	}
	if len(r.Finish())+len(r.Feed([]byte(chatDone)))+len(r.Close(true)) != 0 || r.Finished() {
		t.Error("more after the terminal event")
	}
}

func TestNothingComesAfterTheTerminalEvent(t *testing.T) {
	t.Parallel()
	for _, end := range []string{chatDone, chatError, "data: {\n\n"} {
		r := newReader(chatPath)
		events := r.Feed([]byte(chatChunk + end + chatChunk + chatDone))
		if len(events) != 2 || !events[1].Kind.IsTerminal() {
			t.Errorf("%q: %+v", end, events)
		}
		if len(r.Feed([]byte(chatChunk)))+len(r.Close(true)) != 0 {
			t.Errorf("%q: more events", end)
		}
	}
}

// cases: litellm#3276, LightLLM#1445.
func TestChoicesKeepTheirIndexAndTheirFinish(t *testing.T) {
	t.Parallel()
	events := readString(t, "", `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}

data: {"choices":[{"index":1,"delta":{"content":"b"}},{"delta":{"content":"c"},"index":0}]}

data: {"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}

data: {"choices":[{"index":0,"delta":{"content":"d"}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`)
	if a, b := choiceOf(events, 0), choiceOf(events, 1); a.text != "acd" || b.text != "b" {
		t.Errorf("texts %q and %q", a.text, b.text)
	}
	want := &event.Result{
		Finish: event.FinishStop, ProviderFinish: "stop",
		Choices: []event.ChoiceFinish{{Choice: 0, Finish: event.FinishStop}, {Choice: 1, Finish: event.FinishLength}},
	}
	if got := answerOf(events).result; !reflect.DeepEqual(got, want) {
		t.Errorf("result %+v, want %+v", got, want)
	}
}

func TestUsageIsTheLastOneThatWasGiven(t *testing.T) {
	t.Parallel()
	chunk := func(usage string) string {
		return `data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":` + usage + "}\n\n"
	}
	for name, tt := range map[string]struct {
		body string
		want *event.TokenUsage
	}{
		"none":                {chunk("null"), nil},
		"zeros, as LocalAI":   {chunk(`{"prompt_tokens":0,"completion_tokens":0}`), &event.TokenUsage{}},
		"cumulative":          {chunk(`{"prompt_tokens":2,"completion_tokens":1}`) + chunk(`{"prompt_tokens":2,"completion_tokens":2}`), &event.TokenUsage{Input: 2, Output: 2}},
		"then null":           {chunk(`{"prompt_tokens":2}`) + chunk("null"), &event.TokenUsage{Input: 2, Output: -1}},
		"Groq's":              {`data: {"choices":[{"delta":{"content":"x"}}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":6}}}` + "\n\n", &event.TokenUsage{Input: 5, Output: 6}},
		"before the choices":  {`data: {"usage":{"prompt_tokens":1},"choices":[{"delta":{"content":"x"}}]}` + "\n\n", &event.TokenUsage{Input: 1, Output: -1}},
		"no choices (Azure)":  {chunk("null") + `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":8}}` + "\n\n", &event.TokenUsage{Input: 7, Output: 8}},
		"neither of the both": {chunk(`{"total_tokens":9}`), nil},
	} {
		a := answerOf(readString(t, "", tt.body+chatDone))
		if a.result == nil || !reflect.DeepEqual(a.result.Usage, tt.want) {
			t.Errorf("%s: %+v", name, a.result)
		}
	}
}

func TestFinishReasonsAreNormalized(t *testing.T) {
	t.Parallel()
	tool := `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}` + "\n\n"
	for want, words := range map[event.FinishReason][]string{
		event.FinishStop:          {"stop", "end_turn", "stop_sequence", "STOP", "STOP_SEQUENCE", "COMPLETE", "completed", "eos", "eos_token", "word", ""},
		event.FinishLength:        {"length", "limit", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_context_window_exceeded", "model_length", "time_limit", "repetition"},
		event.FinishToolCalls:     {"tool_calls", "tool_use", "function_call", "TOOL_CALL"},
		event.FinishContentFilter: {"content_filter", "refusal", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "guardrail_intervened", "content_filtered", "CONTENT_FILTER", "sensitive", "SPII", "LANGUAGE", "IMAGE_SAFETY"},
		event.FinishPause:         {"pause_turn"},
		event.FinishCancelled:     {"cancelled"},
		event.FinishOther:         {"stopp", "OTHER", "load"},
	} {
		for _, word := range words {
			end := `data: {"choices":[{"delta":{},"finish_reason":"` + word + `"}]}` + "\n\n" + chatDone
			if a := answerOf(readString(t, "", chatChunk+end)); a.result == nil || a.result.Finish != want || a.result.ProviderFinish != word {
				t.Errorf("%q: %+v", word, a.result)
			}
			if want == event.FinishStop {
				want = event.FinishToolCalls
			}
			if a := answerOf(readString(t, "", tool+end)); a.result == nil || a.result.Finish != want {
				t.Errorf("%q after a tool call: %+v", word, a.result)
			}
			if want == event.FinishToolCalls && words[0] == "stop" {
				want = event.FinishStop
			}
		}
	}
}

// A word that means failure is an error with that word, unless another choice
// has ended well.
func TestFinishReasonsThatMeanFailure(t *testing.T) {
	t.Parallel()
	finish := func(index, word string) string {
		return `data: {"choices":[{"index":` + index + `,"delta":{},"finish_reason":"` + word + `"}]}` + "\n\n"
	}
	for _, word := range []string{
		"error", "failed", "abort", "aborted", "network_error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL",
		"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "malformed_model_output", "malformed_tool_use",
	} {
		for _, end := range []string{chatDone, ""} {
			a := answerOf(readString(t, "", chatChunk+finish("0", word)+end))
			if a.text != "Hi" || a.err == nil || a.err.Code != event.CodeUpstreamError || string(a.err.Upstream) != `{"finish_reason":"`+word+`"}` {
				t.Errorf("%q: %+v", word, a)
			}
		}
		two := `data: {"choices":[{"index":1,"delta":{"content":"x"}}]}` + "\n\n"
		a := answerOf(readString(t, "", chatChunk+two+finish("0", word)+finish("1", "stop")+chatDone))
		want := []event.ChoiceFinish{{Choice: 0, Finish: event.FinishOther}, {Choice: 1, Finish: event.FinishStop}}
		if a.result == nil || !reflect.DeepEqual(a.result.Choices, want) {
			t.Errorf("%q beside stop: %+v", word, a)
		}
	}
}
