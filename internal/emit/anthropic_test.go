package emit_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

const messageStart = `{"type":"message_start","message":{"id":"msg_` + responseID + `","type":"message","role":"assistant",` +
	`"model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}`

// namedFrames returns the stream of frames whose event is the type of their
// data.
func namedFrames(t *testing.T, data ...string) string {
	t.Helper()
	var b strings.Builder
	for _, d := range data {
		var v struct{ Type string }
		if err := json.Unmarshal([]byte(d), &v); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		b.WriteString("event: " + v.Type + "\ndata: " + d + "\n\n")
	}
	return b.String()
}

func blockStart(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":{` + block + `}}`
}

func blockDelta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":{` + delta + `}}`
}

func blockStop(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

// messageEnd is the last two events.
func messageEnd(reason, usage string) []string {
	return []string{
		`{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{` + usage + `}}`,
		`{"type":"message_stop"}`,
	}
}

func TestAnthropicFrames(t *testing.T) {
	toolUse := event.Result{Finish: event.FinishToolCalls}
	for _, test := range []struct {
		name   string
		events []event.Event
		want   []string
		end    []string
	}{
		{
			"text, of the first choice only",
			[]event.Event{
				text("Hel\n"), ofChoice(1, text("x")), text("lo"),
				done(event.Result{ProviderFinish: "stop_sequence", Usage: &event.TokenUsage{Input: 12, Output: 34}}),
			},
			[]string{
				messageStart, blockStart("0", `"type":"text","text":""`),
				blockDelta("0", `"type":"text_delta","text":"Hel\n"`), blockDelta("0", `"type":"text_delta","text":"lo"`), blockStop("0"),
			},
			messageEnd("stop_sequence", `"input_tokens":12,"output_tokens":34`),
		},
		{
			"thinking, then a refusal in the text",
			[]event.Event{reasoning("hm"), text("I "), refusal("can't"), done(event.Result{Finish: event.FinishContentFilter})},
			[]string{
				messageStart, blockStart("0", `"type":"thinking","thinking":"","signature":""`),
				blockDelta("0", `"type":"thinking_delta","thinking":"hm"`), blockStop("0"),
				blockStart("1", `"type":"text","text":""`),
				blockDelta("1", `"type":"text_delta","text":"I "`), blockDelta("1", `"type":"text_delta","text":"can't"`), blockStop("1"),
			},
			messageEnd("refusal", `"output_tokens":0`),
		},
		{
			"calls one after the other",
			[]event.Event{
				call(0, "a\"", "get", ""), args(0, `{"a\\\"}":`), args(0, `"}"}`),
				call(1, "", "now", `{}`), text("x"), done(toolUse),
			},
			[]string{
				messageStart, blockStart("0", `"type":"tool_use","id":"a\"","name":"get","input":{}`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"{\"a\\\\\\\"}\":"`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"\"}\"}"`), blockStop("0"),
				blockStart("1", `"type":"tool_use","id":"toolu_`+responseID+`_1","name":"now","input":{}`),
				blockDelta("1", `"type":"input_json_delta","partial_json":"{}"`), blockStop("1"),
				blockStart("2", `"type":"text","text":""`), blockDelta("2", `"type":"text_delta","text":"x"`), blockStop("2"),
			},
			messageEnd("tool_use", `"output_tokens":0`),
		},
		{
			"what comes between the fragments of a call waits until it is whole",
			[]event.Event{
				call(0, "a", "f", ""), call(1, "b", "g", ""), text("x"), args(0, `{"k":`), text("y"), args(1, `{"l"`), args(0, `1}`),
				args(1, `:2}`), args(0, " "), text("z"), done(toolUse),
			},
			[]string{
				messageStart, blockStart("0", `"type":"tool_use","id":"a","name":"f","input":{}`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"{\"k\":"`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"1}"`), blockStop("0"),
				blockStart("1", `"type":"tool_use","id":"b","name":"g","input":{}`),
				blockDelta("1", `"type":"input_json_delta","partial_json":"{\"l\""`),
				blockDelta("1", `"type":"input_json_delta","partial_json":":2}"`), blockStop("1"),
				blockStart("2", `"type":"text","text":""`),
				blockDelta("2", `"type":"text_delta","text":"xy"`), blockDelta("2", `"type":"text_delta","text":"z"`), blockStop("2"),
			},
			messageEnd("tool_use", `"output_tokens":0`),
		},
		{
			"what still waits at the end is written",
			[]event.Event{call(0, "a", "f", ""), call(1, "b", "g", `{"l`), reasoning("x"), done(toolUse)},
			[]string{
				messageStart, blockStart("0", `"type":"tool_use","id":"a","name":"f","input":{}`), blockStop("0"),
				blockStart("1", `"type":"tool_use","id":"b","name":"g","input":{}`),
				blockDelta("1", `"type":"input_json_delta","partial_json":"{\"l"`), blockStop("1"),
				blockStart("2", `"type":"thinking","thinking":"","signature":""`),
				blockDelta("2", `"type":"thinking_delta","thinking":"x"`), blockStop("2"),
			},
			messageEnd("tool_use", `"output_tokens":0`),
		},
		{
			"arguments that are free text become an object",
			[]event.Event{call(0, "a", "sql", "SELECT"), args(0, ` "x"`), text("y"), done(toolUse)},
			[]string{
				messageStart, blockStart("0", `"type":"tool_use","id":"a","name":"sql","input":{}`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"{\"input\":\"SELECT"`),
				blockDelta("0", `"type":"input_json_delta","partial_json":" \\\"x\\\""`),
				blockDelta("0", `"type":"input_json_delta","partial_json":"\"}"`), blockStop("0"),
				blockStart("1", `"type":"text","text":""`), blockDelta("1", `"type":"text_delta","text":"y"`), blockStop("1"),
			},
			messageEnd("tool_use", `"output_tokens":0`),
		},
		{
			"error",
			[]event.Event{text("x"), failed(504, event.CodeTotalTimeout, "m", "")},
			[]string{
				messageStart, blockStart("0", `"type":"text","text":""`), blockDelta("0", `"type":"text_delta","text":"x"`),
				`{"type":"error","error":{"type":"timeout_error","code":"total_timeout","message":"m","response_id":"` + responseID + `"}}`,
			},
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := encode(emit.NewAnthropic(responseID, "claude"), test.events...)
			if want := namedFrames(t, append(test.want, test.end...)...); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			parseFrames(t, got)
		})
	}
}

func TestAnthropicStopReasons(t *testing.T) {
	for _, test := range []struct {
		finish event.FinishReason
		word   string
		want   string
	}{
		{event.FinishStop, "", "end_turn"},
		{event.FinishStop, "stop", "end_turn"},
		{event.FinishStop, "stop_sequence", "stop_sequence"},
		{event.FinishLength, "length", "max_tokens"},
		{event.FinishLength, "model_context_window_exceeded", "model_context_window_exceeded"},
		{event.FinishToolCalls, "STOP", "tool_use"},
		{event.FinishContentFilter, "SAFETY", "refusal"},
		{event.FinishPause, "pause_turn", "pause_turn"},
		{event.FinishPause, "", "pause_turn"},
		{event.FinishCancelled, "end_turn", "max_tokens"},
		{event.FinishOther, "MALFORMED", "end_turn"},
	} {
		got := encode(emit.NewAnthropic(responseID, "claude"), done(event.Result{Finish: test.finish, ProviderFinish: test.word}))
		want := namedFrames(t, append([]string{messageStart}, messageEnd(test.want, `"output_tokens":0`)...)...)
		if got != want {
			t.Errorf("%s, %q: got\n%s", test.finish, test.word, got)
		}
	}
}

func TestAnthropicUsageNeedsOutputTokens(t *testing.T) {
	for _, test := range []struct {
		usage event.TokenUsage
		want  string
	}{
		{event.TokenUsage{Input: 5, Output: -1}, `"input_tokens":5,"output_tokens":0`},
		{event.TokenUsage{Input: -1, Output: 7}, `"output_tokens":7`},
	} {
		got := encode(emit.NewAnthropic(responseID, "claude"), done(event.Result{Usage: &test.usage}))
		if !strings.Contains(got, `"usage":{`+test.want+`}`) {
			t.Errorf("%+v: got\n%s", test.usage, got)
		}
	}
}

func TestAnthropicModelMayComeLater(t *testing.T) {
	enc := emit.NewAnthropic(responseID, "")
	enc.SetModel("claude")
	if got := encode(enc, text("x")); !strings.Contains(got, `"model":"claude"`) {
		t.Errorf("got %s", got)
	}
}

func TestAnthropicHeader(t *testing.T) {
	h := http.Header{}
	emit.NewAnthropic(responseID, "").Header(h)
	if h.Get("Content-Type") != "text/event-stream; charset=utf-8" || h.Get("X-Response-Id") != responseID {
		t.Errorf("got %v", h)
	}
}

func BenchmarkAnthropic(b *testing.B) {
	benchmarkDelta(b, emit.NewAnthropic(responseID, "claude"), text(" world"))
}
