package provider_test

import (
	"reflect"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// These are the formats of servers that have an API of their own beside
// OpenAI's: text-generation-inference, llama.cpp and watsonx.

func TestNativeFormats(t *testing.T) {
	t.Parallel()
	for format, tt := range map[string]struct {
		events []string // the last one ends the response
		model  string
		finish string
		usage  *event.TokenUsage
	}{
		"tgi": {[]string{
			`{"index":1,"token":{"id":1,"text":"H","logprob":-1,"special":false},"generated_text":null,"details":null}`,
			`{"index":2,"token":{"id":2,"text":"é","special":false},"generated_text":null,"details":null}`,
			`{"index":3,"token":{"id":3,"text":"</s>","special":true},"generated_text":"Hé","details":{"finish_reason":"eos_token","generated_tokens":3,"seed":null,"input_length":5}}`,
		}, "", "eos_token", &event.TokenUsage{Input: 5, Output: 3}},
		"llamacpp-completion": {[]string{
			`{"content":"H","stop":false,"slot_id":0,"multimodal":false}`,
			`{"index":0,"content":"é","stop":false,"tokens_predicted":2,"tokens_evaluated":5}`,
			`{"content":"","stop":true,"model":"m","prompt":"no","generation_settings":{"stop":["no"]},` +
				`"stop_type":"limit","tokens_predicted":3,"tokens_evaluated":5}`,
		}, "m", "limit", &event.TokenUsage{Input: 5, Output: 3}},
		"watsonx": {[]string{
			`{"model_id":"m","results":[{"generated_text":"H","generated_token_count":1,"input_token_count":5,"stop_reason":"not_finished"}],"system":{"warnings":[{"message":"no"}]}}`,
			`{"model_id":"m","results":[{"generated_text":"é","generated_token_count":2,"input_token_count":0,"stop_reason":"not_finished"}]}`,
			`{"model_id":"m","results":[{"generated_text":"","generated_token_count":3,"input_token_count":0,"stop_reason":"eos_token"}]}`,
		}, "m", "eos_token", &event.TokenUsage{Input: 5, Output: 3}},
	} {
		last := len(tt.events) - 1
		start := "data:" + tt.events[0] + "\n\n" + "data: " + tt.events[1] + "\r\n\r\n"
		end := "id: 3\nevent: message\ndata: " + tt.events[last]
		r := newReader("")
		a := answerOf(readAll(t, r, []byte(start+end), whole))
		if a.text != "Hé" || a.result == nil || a.result.ProviderFinish != tt.finish || !reflect.DeepEqual(a.result.Usage, tt.usage) {
			t.Errorf("%s: %+v, result %+v", format, a, a.result)
		}
		if r.Format() != format || r.Model() != tt.model {
			t.Errorf("%s: format %q, model %q", format, r.Format(), r.Model())
		}
		if format != "watsonx" { // which has nothing but the end of the body
			events := newReader("").Feed([]byte(start + end + "\n\n" + start))
			if len(events) != 3 || events[2].Kind != event.Done {
				t.Errorf("%s: %d events after the last one", format, len(events))
			}
		}
		for rest, want := range map[string]event.Code{
			"": event.CodeUpstreamTruncated,
			"data: " + tt.events[last][:len(tt.events[last])-2]:                         event.CodeUpstreamTruncated,
			"data: " + tt.events[last][:len(tt.events[last])-2] + "\n\n":                event.CodeInvalidUpstream,
			`data: {"error":"no luck","error_type":"generation"}` + "\n\n":              event.CodeUpstreamError,
			`data: {"error":{"code":500,"message":"no luck"}}` + "\n\n" + end:           event.CodeUpstreamError,
			`event: error` + "\n" + `data: {"errors":[{"message":"no luck"}]}` + "\n\n": event.CodeUpstreamError,
		} {
			a := answerOf(readString(t, "", start+rest))
			isError := want == event.CodeUpstreamError
			if a.text != "Hé" || a.err == nil || a.err.Code != want || isError && a.err.Message != "no luck" {
				t.Errorf("%s, %q: %+v", format, rest, a)
			}
		}
	}
}

func TestLlamaCppReasonsBeforeTheyHadAWord(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]event.FinishReason{
		"stopped_eos": event.FinishStop, "stopped_word": event.FinishStop, "stopped_limit": event.FinishLength,
	} {
		a := answerOf(readString(t, "/completion", `data: {"content":"T","stop":true,"stopped_eos":false,"stopped_limit":false,"`+flag+`":true}`+"\n\n"))
		if a.text != "T" || a.result == nil || a.result.Finish != want {
			t.Errorf("%s: %+v", flag, a.result)
		}
	}
}

func TestLlamaCppWithSeveralPrompts(t *testing.T) {
	t.Parallel()
	events := readString(t, "/completion", `data: {"index":0,"content":"a","stop":false}

data: {"index":1,"content":"b","stop":false}

data: {"index":0,"content":"","stop":true,"stop_type":"eos"}

data: {"index":1,"content":"c","stop":true,"stop_type":"limit"}

`)
	a, b := choiceOf(events, 0), choiceOf(events, 1)
	want := []event.ChoiceFinish{{Choice: 0, Finish: event.FinishStop}, {Choice: 1, Finish: event.FinishLength}}
	if a.text != "a" || b.text != "bc" || a.result == nil || !reflect.DeepEqual(a.result.Choices, want) {
		t.Errorf("%q, %q, %+v", a.text, b.text, a.result)
	}
}

func TestWatsonxErrors(t *testing.T) {
	t.Parallel()
	text := `data: {"results":[{"generated_text":"T","stop_reason":"not_finished"}]}` + "\n\n"
	a := answerOf(readString(t, "", text+`data: {"errors":[{"code":"x","message":"no luck"}],"status_code":429}`+"\n\n"))
	if a.text != "T" || a.err == nil || a.err.Message != "no luck" || a.err.Status != 429 {
		t.Errorf("%+v", a.err)
	}
}
