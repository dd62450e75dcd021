package provider_test

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"reflect"
	"strings"
	"testing"
)

const coherePath = "/v2/chat"

// cohereBody puts events together whose type is their name too.
func cohereBody(events ...string) string {
	var b strings.Builder
	for _, chunk := range events {
		name, rest, _ := strings.Cut(chunk, " ")
		b.WriteString("event: " + name + "\ndata: {\"type\":\"" + name + `"` + rest + "}\n\n")
	}
	return b.String()
}

func TestCohereEvents(t *testing.T) {
	t.Parallel()
	message := func(content string) string { return `"delta":{"message":{` + content + `}}` }
	body := cohereBody(
		`message-start ,"id":"i",`+message(`"role":"assistant","content":[],"tool_plan":"","tool_calls":[]`),
		`tool-plan-delta ,`+message(`"tool_plan":"P"`),
		`content-start ,"index":0,`+message(`"content":{"type":"thinking","thinking":"R1"}`),
		`content-delta ,"index":0,`+message(`"content":{"thinking":"R2"}`),
		`content-start ,"index":1,`+message(`"content":{"type":"text","text":""}`),
		`content-delta ,"index":1,`+message(`"content":{"text":"T"}`),
		`citation-start ,"index":0,`+message(`"citations":{"text":"no"}`),
		`content-end ,"index":1`,
		`tool-call-start ,"index":0,`+message(`"tool_calls":{"id":"a","type":"function","function":{"name":"f","arguments":""}}`),
		`tool-call-start ,"index":1,`+message(`"tool_calls":{"id":"b","function":{"name":"g","arguments":"{"}}`),
		`tool-call-delta ,"index":0,`+message(`"tool_calls":{"function":{"arguments":"{}"}}`),
		`tool-call-delta ,"index":1,`+message(`"tool_calls":{"function":{"arguments":"}"}}`),
		`tool-call-delta ,"index":7,`+message(`"tool_calls":{"function":{"arguments":"nobody's"}}`),
		`message-end ,"delta":{"finish_reason":"TOOL_CALL","usage":{"billed_units":{"input_tokens":1,"output_tokens":2},"tokens":{"input_tokens":3,"output_tokens":4}}}`)
	for name, body := range map[string]string{
		"with DONE": body + chatDone, "without": body, "unnamed": unnamed(body),
	} {
		r := newReader("")
		a := answerOf(readAll(t, r, []byte(body), whole))
		calls := []call{{"a", "f", "{}"}, {"b", "g", "{}"}}
		result := &event.Result{
			Finish: event.FinishToolCalls, ProviderFinish: "TOOL_CALL", Usage: &event.TokenUsage{Input: 3, Output: 4},
		}
		if a.text != "T" || a.reasoning != "PR1R2" || !reflect.DeepEqual(a.calls, calls) || !reflect.DeepEqual(a.result, result) {
			t.Errorf("%s: %+v, result %+v", name, a, a.result)
		}
		if r.ResponseID() != "i" || r.Format() != "cohere-v2" {
			t.Errorf("%s: id %q, format %q", name, r.ResponseID(), r.Format())
		}
	}
}

// unnamed returns server-sent events without their names.
func unnamed(body string) string {
	var b strings.Builder
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "event:") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestCohereFailsInItsLastEvent(t *testing.T) {
	t.Parallel()
	text := cohereBody(`content-delta ,"index":0,"delta":{"message":{"content":{"text":"T"}}}`)
	usage := `"usage":{"billed_units":{"input_tokens":1,"output_tokens":2}}`
	for body, want := range map[string]string{
		cohereBody(`message-end ,"delta":{"error":"no \"luck\"","finish_reason":"ERROR",` + usage + `}`): `{"message":"no \"luck\""}`,
		cohereBody(`message-end ,"error":"no luck","delta":{` + usage + `,"finish_reason":"ERROR"}`):     `{"message":"no luck"}`,
		cohereBody(`message-end ,"delta":{"finish_reason":"ERROR",` + usage + `}`):                       `{"finish_reason":"ERROR"}`,
	} {
		r := newReader(coherePath)
		a := answerOf(readAll(t, r, []byte(text+body+chatDone), whole))
		if a.text != "T" || a.err == nil || a.err.Code != event.CodeUpstreamError || string(a.err.Upstream) != want {
			t.Errorf("%s: %+v", body, a.err)
		}
		if got := r.Usage(); got == nil || *got != (event.TokenUsage{Input: 1, Output: 2}) {
			t.Errorf("%s: usage %v", body, got)
		}
	}
	for body, want := range map[string]event.Code{
		"":                                  event.CodeUpstreamTruncated,
		"event: content-delta\ndata: {\n\n": event.CodeInvalidUpstream,
		cohereBody(`content-delta ,"delta":{"message":{"content":{"text":[1]}}}`): event.CodeInvalidUpstream,
		cohereBody(`debug ,"error":{"message":"no luck"}`):                        event.CodeUpstreamError,
	} {
		if a := answerOf(readString(t, coherePath, text+body)); a.err == nil || a.err.Code != want {
			t.Errorf("%s: %+v", body, a)
		}
	}
	broken := "event: citation-start\ndata: {\n\nevent: message-end\ndata: {\n\n"
	if a := answerOf(readString(t, coherePath, text+broken)); a.result == nil || a.result.Finish != event.FinishStop {
		t.Errorf("names alone: %+v", a)
	}
}

const cohereV1End = `{"is_finished":true,"event_type":"stream-end","response":{"generation_id":"i","text":"T",` +
	`"meta":{"billed_units":{"input_tokens":1,"output_tokens":2},"tokens":{"input_tokens":3,"output_tokens":4}}},"finish_reason":"COMPLETE"}` + "\n"

func TestCohereV1Lines(t *testing.T) {
	t.Parallel()
	start := `{"is_finished":false,"event_type":"stream-start","generation_id":"i"}` + "\n"
	text := `{"is_finished":false,"event_type":"text-generation","text":"T"}` + "\n"
	chunks := `{"event_type":"tool-calls-chunk","text":"P"}` + "\n" +
		`{"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"name":"f"}}` + "\n" +
		`{"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"parameters":"{\"x\":"}}` + "\n" +
		`{"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"parameters":"1}"}}` + "\n" +
		`{"event_type":"tool-calls-chunk","tool_call_delta":{"index":5,"parameters":"nobody's"}}` + "\n"
	generation := `{"event_type":"tool-calls-generation","text":"no","tool_calls":[{"name":"f","parameters":{"x": 1}}]}` + "\n"
	for name, tt := range map[string]struct {
		body      string
		reasoning string
		calls     []call
	}{
		"text":         {start + text + cohereV1End, "", nil},
		"chunks":       {start + text + chunks + generation + cohereV1End, "P", []call{{"", "f", `{"x":1}`}}},
		"whole":        {start + text + generation + cohereV1End, "", []call{{"", "f", `{"x":1}`}}},
		"event stream": {"data: " + strings.ReplaceAll(strings.TrimSpace(start+text+cohereV1End), "\n", "\n\ndata: ") + "\n\n", "", nil},
	} {
		r := newReader("")
		a := answerOf(readAll(t, r, []byte(tt.body), whole))
		if a.text != "T" || a.reasoning != tt.reasoning || !reflect.DeepEqual(a.calls, tt.calls) {
			t.Errorf("%s: %+v", name, a)
		}
		usage := &event.TokenUsage{Input: 3, Output: 4}
		if a.result == nil || a.result.ProviderFinish != "COMPLETE" || !reflect.DeepEqual(a.result.Usage, usage) || r.ResponseID() != "i" {
			t.Errorf("%s: %+v, id %q", name, a.result, r.ResponseID())
		}
	}
	for rest, want := range map[string]event.Code{
		"":                           event.CodeUpstreamTruncated,
		`{"error":"no luck"}` + "\n": event.CodeUpstreamError,
		`{"event_type":"text` + "\n": event.CodeInvalidUpstream,
		`{"event_type":"stream-end","finish_reason":"ERROR","response":null}` + "\n": event.CodeUpstreamError,
	} {
		if a := answerOf(readString(t, "/v1/chat", start+text+rest)); a.text != "T" || a.err == nil || a.err.Code != want {
			t.Errorf("%q: %+v", rest, a)
		}
	}
}
