package provider_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

const (
	geminiPath   = "/v1beta/models/gemini-3:streamGenerateContent"
	geminiFinish = `{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP","index":0}],` +
		`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"thoughtsTokenCount":5},"modelVersion":"m","responseId":"r"}`
)

// geminiParts is an event with these parts.
func geminiParts(parts string) string {
	return `{"candidates":[{"content":{"parts":[` + parts + `],"role":"model"}}]}`
}

// geminiBody puts events together.
func geminiBody(events ...string) string {
	return "data: " + strings.Join(events, "\r\n\r\ndata: ") + "\r\n\r\n"
}

func TestGeminiParts(t *testing.T) {
	t.Parallel()
	events := []string{
		geminiParts(`{"text":"R","thought":true},{"text":"T"}`),
		geminiParts(`{"executableCode":{"code":"no"}},{"codeExecutionResult":{"output":"no"}},{"inlineData":{"data":"no"}},` +
			`{"toolCall":{"args":{}}},{"thoughtSignature":"no"},{"text":"U","thought":false,"thoughtSignature":"no"}`),
		geminiParts(`{"functionCall":{"name":"f","args":{"a": 1},"id":"c"}},{"functionCall":{"name":"g"}}`),
		`{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]},"finishReason":"MAX_TOKENS"},{"content":{"role":"model"}}]}`,
		geminiFinish,
	}
	array := "[" + strings.Join(events, "\n,\r\n") + "\n]\n"
	for name, body := range map[string]string{"events": geminiBody(events...), "array": array} {
		r := newReader(geminiPath)
		all := readAll(t, r, []byte(body), whole)
		a := answerOf(all)
		want := &event.Result{
			Finish: event.FinishToolCalls, ProviderFinish: "STOP",
			Choices: []event.ChoiceFinish{{Choice: 0, Finish: event.FinishToolCalls}, {Choice: 1, Finish: event.FinishLength}},
			Usage:   &event.TokenUsage{Input: 3, Output: 9, Reasoning: 5},
		}
		if a.text != "TU" || a.reasoning != "R" || !reflect.DeepEqual(a.calls, []call{{"c", "f", `{"a":1}`}, {"", "g", "{}"}}) {
			t.Errorf("%s: %+v", name, a)
		}
		if !reflect.DeepEqual(a.result, want) || choiceOf(all, 1).text != "other" || r.Model() != "m" || r.ResponseID() != "r" {
			t.Errorf("%s: %+v", name, a.result)
		}
	}
}

// The sequences are those of Vertex with streamFunctionCallArguments.
func TestGeminiArgumentsInParts(t *testing.T) {
	t.Parallel()
	begin := `{"functionCall":{"name":"f","willContinue":true}}`
	end := `{"functionCall":{}}`
	more := func(args string) string {
		return `{"functionCall":{"partialArgs":[` + args + `],"willContinue":true}}`
	}
	for name, tt := range map[string]struct {
		parts []string
		want  string
	}{
		"no arguments": {[]string{begin, end}, `{}`},
		"a string in pieces": {[]string{
			begin,
			more(`{"jsonPath":"$.city","stringValue":"S\u00e3o \"P\"","willContinue":true}`),
			more(`{"jsonPath":"$.city","stringValue":"aulo","willContinue":true}`),
			more(`{"jsonPath":"$.city","stringValue":""}`), end,
		}, `{"city":"S\u00e3o \"P\"aulo"}`},
		"one place, two paths": {[]string{
			begin, more(`{"jsonPath":"$.a","stringValue":"b"},{"jsonPath":"$['a']","stringValue":"c"}`), end,
		}, `{"a":"bc"}`},
		"scalars": {[]string{begin, more(`{"jsonPath":"$.n","numberValue":-1.5e3},{"jsonPath":"$.t","boolValue":true},` +
			`{"jsonPath":"$.z","nullValue":"NULL_VALUE"},{"jsonPath":"$.e","stringValue":""}`), end}, `{"n":-1.5e3,"t":true,"z":null,"e":""}`},
		"nested": {[]string{
			begin,
			more(`{"jsonPath":"$.r.list[0].amount","stringValue":"16 oz","willContinue":true}`),
			more(`{"jsonPath":"$.r.list[0].amount","stringValue":""}`),
			more(`{"jsonPath":"$.r.list[0].name","stringValue":"a"}`),
			`{"functionCall":{"willContinue":true}}`,
			more(`{"jsonPath":"$.r.list[1].amount","stringValue":"1 lb"}`),
			more(`{"jsonPath":"$.r.deep[0][0]","numberValue":1},{"jsonPath":"$.r.deep[0][1]","numberValue":2},{"jsonPath":"$.r.deep[1][0]","numberValue":3}`),
			more(`{"jsonPath":"$.last","boolValue":false}`), end,
		}, `{"r":{"list":[{"amount":"16 oz","name":"a"},{"amount":"1 lb"}],"deep":[[1,2],[3]]},"last":false}`},
		"quoted names": {[]string{
			begin, more(`{"jsonPath":"$['a.b']","numberValue":1},{"jsonPath":"$[\"c\\\"]\"]","numberValue":2}`), end,
		}, `{"a.b":1,"c\"]":2}`},
		"arguments with the name": {[]string{
			`{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"b"}],"willContinue":true}}`, end,
		}, `{"a":"b"}`},
		"the last part has arguments": {[]string{begin, `{"functionCall":{"partialArgs":[{"jsonPath":"$.a","numberValue":0.3}]}}`}, `{"a":0.3}`},
		"no last part":                {[]string{begin, more(`{"jsonPath":"$.a","stringValue":"b","willContinue":true}`)}, `{"a":"b"}`},
		"a place without a value":     {[]string{begin, more(`{"jsonPath":"$.a","willContinue":true}`), more(`{"jsonPath":"$.a","numberValue":1}`), end}, `{"a":1}`},
		"ended twice":                 {[]string{begin, end, end}, `{}`},
	} {
		body := ""
		for _, part := range tt.parts {
			body += geminiBody(geminiParts(part))
		}
		// A second call shows that the first one has ended.
		second := geminiParts(`{"functionCall":{"name":"g","args":{}}}`)
		for _, parts := range []func(int) int{whole, func(int) int { return 1 }} {
			a := answerOf(readAll(t, newReader(geminiPath), []byte(body+geminiBody(second, geminiFinish)), parts))
			if len(a.calls) != 2 || a.calls[0].name != "f" || a.calls[0].arguments != tt.want || a.calls[1] != (call{"", "g", "{}"}) {
				t.Errorf("%s: %+v", name, a)
			}
		}
		a := answerOf(readString(t, geminiPath, body+geminiBody(geminiFinish)))
		if len(a.calls) != 1 || a.calls[0].arguments != tt.want || a.result == nil || a.result.Finish != event.FinishToolCalls {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestGeminiArgumentsThatMakeNoObject(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		`{"jsonPath":"$.a","numberValue":1},{"jsonPath":"$.a","numberValue":2}`,                                      // twice
		`{"jsonPath":"$.a.b","numberValue":1},{"jsonPath":"$.c","numberValue":2},{"jsonPath":"$.a.d","boolValue":1}`, // left already
		`{"jsonPath":"$.a","numberValue":1},{"jsonPath":"$.a.b","numberValue":2}`,                                    // a value and an object
		`{"jsonPath":"$.a.b","numberValue":1},{"jsonPath":"$.a","numberValue":2}`,
		`{"jsonPath":"$.a.b","numberValue":1},{"jsonPath":"$.a[0]","numberValue":2}`, // an object and an array
		`{"jsonPath":"$.a[1]","numberValue":1}`,                                      // a hole
		`{"jsonPath":"$.a[0]","numberValue":1},{"jsonPath":"$.a[2]","numberValue":1}`,
		`{"jsonPath":"$[0]","numberValue":1}`,
		`{"jsonPath":"$","numberValue":1}`,
		`{"jsonPath":"a","numberValue":1}`,
		`{"jsonPath":"$.","numberValue":1}`,
		`{"jsonPath":"$.a[x]","numberValue":1}`,
		`{"jsonPath":"$.a[0","numberValue":1}`,
		`{"jsonPath":"$['a","numberValue":1}`,
		`{"jsonPath":"$x","numberValue":1}`,
		`{"jsonPath":"$` + strings.Repeat("[0]", 100) + `","numberValue":1}`,
		`{"jsonPath":"$.` + strings.Repeat("x", 70<<10) + `","numberValue":1}`,
		`{"numberValue":1}`,
		`{"jsonPath":"$.a","stringValue":1}`,
		`1`,
	} {
		a := answerOf(readString(t, geminiPath, geminiBody(
			geminiParts(`{"functionCall":{"name":"f","partialArgs":[`+args+`],"willContinue":true}}`), geminiFinish)))
		if a.err == nil || a.err.Code != event.CodeInvalidUpstream {
			t.Errorf("%.80s: %+v", args, a)
		}
	}
}

func TestGeminiBlocksWhateverTheReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"SAFETY", "OTHER", "PROHIBITED_CONTENT"} {
		r := newReader(geminiPath)
		a := answerOf(readAll(t, r, []byte(geminiBody(`{"promptFeedback":{"blockReason":"`+reason+`"},"usageMetadata":{"promptTokenCount":9}}`)), whole))
		want := &event.Result{Finish: event.FinishContentFilter, ProviderFinish: reason, Usage: &event.TokenUsage{Input: 9, Output: -1}}
		if !reflect.DeepEqual(a.result, want) {
			t.Errorf("%s: %+v", reason, a.result)
		}
	}
	a := answerOf(readString(t, geminiPath, geminiBody(`{"promptFeedback":{"safetyRatings":[]}}`, geminiParts(`{"text":"T"}`), geminiFinish)))
	if a.result == nil || a.result.Finish != event.FinishStop {
		t.Errorf("feedback that blocks nothing: %+v", a)
	}
}

func TestGeminiErrors(t *testing.T) {
	t.Parallel()
	text := geminiParts(`{"text":"T"}`)
	object := `{"error":{"code":503,"message":"no luck","status":"UNAVAILABLE"}}`
	pretty := "{\r\n  \"error\": {\r\n    \"code\": 503,\r\n    \"message\": \"no luck\",\r\n    \"details\": [\r\n      {}\r\n    ]\r\n  }\r\n}\r\n"
	for name, body := range map[string]string{
		"as data":            geminiBody(text, object),
		"bare":               geminiBody(text) + pretty,
		"bare, on one line":  geminiBody(text) + object,
		"no blank line":      strings.TrimSuffix(geminiBody(text), "\r\n") + pretty,
		"after the finish":   geminiBody(text, geminiFinish) + pretty,
		"in an array":        "[" + text + ",\n" + object + "]",
		"after an array":     "[" + text + ",\n" + pretty,
		"first":              geminiBody(object),
		"first, in an array": "[" + pretty + "]",
	} {
		for _, split := range []func(int) int{whole, func(int) int { return 1 }} {
			a := answerOf(readAll(t, newReader(geminiPath), []byte(body), split))
			if a.err == nil || a.err.Message != "no luck" || a.err.Status != 503 {
				t.Errorf("%s: %+v", name, a)
			}
			if !strings.HasPrefix(name, "first") && a.text != "T" {
				t.Errorf("%s: text %q", name, a.text)
			}
		}
	}
}

func TestGeminiEndsWithItsBodyAfterTheFinish(t *testing.T) {
	t.Parallel()
	text := geminiParts(`{"text":"T"}`)
	for body, done := range map[string]bool{
		geminiBody(text, geminiFinish):                true,
		geminiBody(text):                              false,
		geminiBody(text) + "data: {\"candidates\":[{": false,
		"[" + text + "," + geminiFinish + "]":         true,
		"[" + text + "," + geminiFinish:               false,
		"[" + text + "]":                              false,
		"[" + text + ",{\"candidates\":":              false,
	} {
		a := answerOf(readString(t, geminiPath, body))
		if (a.result != nil) != done || !done && a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("%s: %+v", body, a)
		}
	}
	r := newReader(geminiPath)
	if events := r.Feed([]byte("[" + text + "," + geminiFinish + "]")); len(events) != 2 || events[1].Kind != event.Done {
		t.Errorf("after the bracket: %+v", events)
	}
}

func TestGeminiThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"candidates":{"a":1}}`,
		`{"candidates":[{"content":[1]}]}`,
		`{"candidates":[{"content":{"parts":{"a":1}}}]}`,
		geminiParts(`{"text":5}`),
		geminiParts(`{"functionCall":"f"}`),
		geminiParts(`{"functionCall":{"name":"f","args":"x"}}`),
		`{"candidates":[{"index":0},{"index":99999}]}`,
	} {
		if a := answerOf(readString(t, geminiPath, geminiBody(geminiParts(`{"text":"T"}`), data, geminiFinish))); a.err == nil || a.err.Code != event.CodeInvalidUpstream {
			t.Errorf("%s: %+v", data, a)
		}
	}
}
