package provider_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// chatDeltas puts deltas of choice 0 into chunks, and ends the stream.
func chatDeltas(deltas ...string) string {
	var body strings.Builder
	for _, delta := range deltas {
		fmt.Fprintf(&body, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", delta)
	}
	return body.String() + chatFinish + chatDone
}

// cases: bifrost#1829, #7235, litellm#39796.
func TestToolCallsStayWholeAndSeparate(t *testing.T) {
	t.Parallel()
	a := call{"a", "f", `{"x":1}`}
	b := call{"b", "g", `{"y":2}`}
	for name, tt := range map[string]struct {
		deltas []string
		want   []call
	}{
		"two in one chunk": {
			[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}]}`},
			[]call{a, b},
		},
		"interleaved": {
			[]string{
				`{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}`,
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}`,
				`{"tool_calls":[{"index":1,"function":{"arguments":"{\"y\":"}},{"index":0,"function":{"arguments":"{\"x\":"}}]}`,
				`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":null,"function":{"name":null,"arguments":"2}"}}]}`,
			},
			[]call{b, a},
		},
		"every index 0, with a new id": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}`,
				`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`,
				`{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\""}}]}`,
				`{"tool_calls":[{"index":0,"id":"","function":{"arguments":":2}"}}]}`,
			},
			[]call{a, b},
		},
		"every index 0, ids repeated and interleaved": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}},{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\""}}]}`,
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}},{"index":0,"id":"b","function":{"name":"g","arguments":":2}"}}]}`,
			},
			[]call{a, b},
		},
		"every index 0, no ids": {
			[]string{
				`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}]}`,
				`{"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{\"y\":2}"}}]}`,
			},
			[]call{{"", "f", `{"x":1}`}, {"", "g", `{"y":2}`}},
		},
		"no index": {
			[]string{
				`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\""}},{"id":"b","function":{"name":"g","arguments":"{\"y\""}}]}`,
				`{"tool_calls":[{"function":{"arguments":":2}"}},{"id":"a","function":{"arguments":":1}"}}]}`,
			},
			[]call{a, b},
		},
		"no index, no ids": {
			[]string{
				`{"tool_calls":[{"function":{"name":"f","arguments":"{\"x\""}}]}`,
				`{"tool_calls":[{"function":{"arguments":":1}"}}]}`,
				`{"tool_calls":[{"function":{"name":"g","arguments":"{\"y\":2}"}}]}`,
			},
			[]call{{"", "f", `{"x":1}`}, {"", "g", `{"y":2}`}},
		},
		"no index, no ids, the same name": {
			[]string{
				`{"tool_calls":[{"function":{"name":"f","arguments":"1"}}]}`,
				`{"tool_calls":[{"function":{"name":"f","arguments":"2"}}]}`,
			},
			[]call{{"", "f", "1"}, {"", "f", "2"}},
		},
		"every index 0, the second name later than its id": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}`,
				`{"tool_calls":[{"index":0,"id":"b"}]}`,
				`{"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{\"y\":2}"}}]}`,
			},
			[]call{a, b},
		},
		"the same id under two indexes": {
			[]string{`{"tool_calls":[{"index":0,"id":"0","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":1,"id":"0","function":{"name":"g","arguments":"{\"y\":2}"}}]}`},
			[]call{{"0", "f", `{"x":1}`}, {"0", "g", `{"y":2}`}},
		},
		"name repeated, then empty": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}`,
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}`,
				`{"tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":":1}"}}]}`,
			},
			[]call{a},
		},
		"id first, name later": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"a","type":"function"}]}`,
				`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`,
				`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}]}`,
			},
			[]call{a},
		},
		"arguments as an object": {
			[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{ "x": 1 }}}]}`},
			[]call{a},
		},
		"names with escapes": {
			[]string{
				`{"tool_calls":[{"index":0,"id":"\u0061","function":{"name":"\u0066","arguments":"{\"x\""}}]}`,
				`{"tool_calls":[{"index":0,"id":"\u0061","function":{"name":"\u0066","arguments":":1}"}}]}`,
			},
			[]call{a},
		},
		"legacy function_call": {
			[]string{
				`{"function_call":{"name":"f","arguments":""}}`,
				`{"function_call":{"arguments":"{\"x\""}}`,
				`{"function_call":{"arguments":":1}"}}`,
			},
			[]call{{"", "f", `{"x":1}`}},
		},
		"none": {[]string{`{"tool_calls":null}`, `{"tool_calls":[]}`, `{"tool_calls":[null]}`, `{"function_call":null}`}, nil},
	} {
		got := answerOf(readString(t, "", chatDeltas(tt.deltas...)))
		if !reflect.DeepEqual(got.calls, tt.want) {
			t.Errorf("%s: %q, want %q", name, got.calls, tt.want)
		}
		if got.text != "" || got.result == nil {
			t.Errorf("%s: text %q, %+v", name, got.text, got.err)
		}
		if want := tt.want != nil; got.result != nil && (got.result.Finish == event.FinishToolCalls) != want {
			t.Errorf("%s: finish %q", name, got.result.Finish)
		}
	}
}

func TestToolCallsOfDifferentChoicesAreCountedApart(t *testing.T) {
	t.Parallel()
	events := readString(t, "", `data: {"choices":[`+
		`{"index":1,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}},`+
		`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"2"}}]}}]}`+"\n\n"+chatDone)
	if got := choiceOf(events, 1).calls; !reflect.DeepEqual(got, []call{{"a", "f", "1"}}) {
		t.Errorf("choice 1: %q", got)
	}
	if got := choiceOf(events, 0).calls; !reflect.DeepEqual(got, []call{{"b", "g", "2"}}) {
		t.Errorf("choice 0: %q", got)
	}
}

// cases: litellm#38907, bifrost#974, cc-switch#6578.
func TestReasoningIsCountedOnce(t *testing.T) {
	t.Parallel()
	details := `"reasoning_details":[{"type":"reasoning.text","text":"R"},{"type":"reasoning.summary","summary":"S"},` +
		`{"type":"reasoning.encrypted","data":"x"},{"type":"reasoning.text","text":"","signature":"x"}, 5]`
	for delta, want := range map[string]string{
		`{"content":null,"reasoning_content":"R"}`:                                                "R",
		`{"content":"","reasoning":"R"}`:                                                          "R",
		`{"reasoning":"R","reasoning_content":"R"}`:                                               "R",
		`{"reasoning_content":"","reasoning":"R"}`:                                                "R",
		`{` + details + `}`:                                                                       "RS",
		`{"reasoning":"R",` + details + `}`:                                                       "R",
		`{"reasoning":null,` + details + `}`:                                                      "RS",
		`{"reasoning":{"effort":"low"},"reasoning_details":"x"}`:                                  "",
		`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"R"}],"closed":true}]}`: "R",
		`{"content":[{"type":"thinking","thinking":"R"}]}`:                                        "R",
	} {
		deltas := make([]string, 200)
		for i := range deltas {
			deltas[i] = delta
		}
		a := answerOf(readString(t, "", chatDeltas(append(deltas, `{"content":"Hi"}`)...)))
		if a.reasoning != strings.Repeat(want, 200) || a.text != "Hi" {
			t.Errorf("%s: reasoning %.20q, text %q", delta, a.reasoning, a.text)
		}
	}
}

func TestReasoningComesBeforeTheTextOfItsChunk(t *testing.T) {
	t.Parallel()
	events := readString(t, "", chatDeltas(
		`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}],"refusal":"no","content":"T","reasoning":"R"}`))
	var kinds []event.Kind
	for _, ev := range events {
		kinds = append(kinds, ev.Kind)
	}
	want := []event.Kind{event.Reasoning, event.Text, event.Refusal, event.ToolCall, event.Done}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}

func TestContentMayBeAnArray(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", chatDeltas(
		`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"4."}]},{"type":"text","text":"a"},"b",`+
			`{"type":"reference","reference_ids":[1]},{"type":"image_url","text":"no"},null,{"text":"c"}]}`, `{"content":"d"}`)))
	if a.text != "abcd" || a.reasoning != "4." {
		t.Errorf("%+v", a)
	}
}

// cases: litellm#30761, #42484, freellmapi#156.
func TestChunksWithoutADeltaCarryNothing(t *testing.T) {
	t.Parallel()
	body := emptyFirst +
		`data: {"choices":[{"index":0,"content_filter_results":{},"finish_reason":null}],"object":"chat.completion.chunk"}` + "\n\n" +
		chatChunk +
		`data: {"choices":[{"index":0,"delta":null,"content_filter_offsets":{}}]}` + "\n\n" +
		chatFinish +
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\n" +
		`data: {"choices":null,"citations":[]}` + "\n\n" + chatDone
	events := readString(t, "", body)
	a := answerOf(events)
	if len(events) != 2 || a.text != "Hi" || a.result == nil || *a.result.Usage != (event.TokenUsage{Input: 3, Output: 4}) {
		t.Errorf("%+v", events)
	}
}

func TestDeltaOutranksTheTextsBesideIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"Together's text": {`data: {"choices":[{"index":0,"text":"a","delta":{"content":"a"}}]}` + "\n\n", "a"},
		"a cumulative message": {
			`data: {"choices":[{"index":0,"message":{"content":"za"},"delta":{"content":"a"}}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"message":{"content":"ab"},"delta":{"content":"b"}}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"message":{"content":"ab"}}]}` + "\n\n", "ab",
		},
		"a message alone": {`data: {"choices":[{"index":0,"message":{"content":"ab"},"finish_reason":"stop"}]}` + "\n\n", "ab"},
		"log probabilities": {
			`data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}]}` + "\n\n", "a",
		},
	} {
		if a := answerOf(readString(t, "", tt.body+chatDone)); a.text != tt.want {
			t.Errorf("%s: text %q", name, a.text)
		}
	}
}

func TestRefusalIsNoText(t *testing.T) {
	t.Parallel()
	a := answerOf(readString(t, "", chatDeltas(`{"content":null,"refusal":""}`, `{"refusal":"I'm"}`, `{"refusal":" sorry"}`)))
	if a.text != "" || a.refusal != "I'm sorry" || a.result == nil {
		t.Errorf("%+v", a)
	}
}

func TestModelAndIDAreTheFirstOnesGiven(t *testing.T) {
	t.Parallel()
	r := newReader("")
	readAll(t, r, []byte(emptyFirst+chatChunk+`data: {"id":"d","model":"n","choices":[{"delta":{}}]}`+"\n\n"), whole)
	if r.Model() != "m" || r.ResponseID() != "c" {
		t.Errorf("model %q, id %q", r.Model(), r.ResponseID())
	}
}

// A chunk that begins as the one before it is read from its choices on.
func TestEqualBeginningsOfChunksChangeNothing(t *testing.T) {
	t.Parallel()
	chunk := func(start, text, end string) string {
		return `data: {` + start + `"choices":[{"index":0,"delta":{"content":"` + text + `"}}]` + end + "}\n\n"
	}
	usage := `"usage":{"prompt_tokens":1,"completion_tokens":1},`
	for name, tt := range map[string]struct{ body, text string }{
		"equal":             {chunk(`"id":"x",`, "a", "") + chunk(`"id":"x",`, "b", "") + chunk(`"id":"x",`, "c", ""), "abc"},
		"longer, then less": {chunk(`"id":"x",`, "a", "") + chunk(`"id":"x","n":1,`, "b", "") + chunk("", "c", ""), "abc"},
		"usage in it":       {chunk(usage, "a", "") + chunk(usage, "b", ""), "ab"},
		"choices twice":     {chunk("", "a", `,"choices":[{"delta":{"content":"b"}}]`) + chunk("", "c", ""), "abc"},
		"long":              {chunk(`"x":"`+strings.Repeat("x", 4096)+`",`, "a", "") + chunk(`"x":"`+strings.Repeat("x", 4096)+`",`, "b", ""), "ab"},
	} {
		a := answerOf(readString(t, "", tt.body+chatFinish))
		if a.text != tt.text || a.result == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := answerOf(readString(t, "", chunk(`"id":"x",`, "a", "")+chunk(`"id":"x",`, "b", ",")+chatFinish))
	if a.text != "a" || a.err == nil || a.err.Code != event.CodeInvalidUpstream {
		t.Errorf("an error after it: %+v", a)
	}
}
