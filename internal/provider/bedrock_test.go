package provider_test

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

const (
	eventStream  = "application/vnd.amazon.eventstream"
	conversePath = "/model/anthropic.claude/converse-stream"
	invokePath   = "/model/anthropic.claude/invoke-with-response-stream"
)

// bedrockFrame puts a frame together. headers are names and values in turns.
func bedrockFrame(payload string, headers ...string) string {
	var h []byte
	for pair := range slices.Chunk(headers, 2) {
		name, value := pair[0], pair[1]
		h = append(append(append(h, byte(len(name))), name...), 7)
		h = append(binary.BigEndian.AppendUint16(h, uint16(len(value))), value...)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(h)+len(payload)+16))
	b = binary.BigEndian.AppendUint32(b, uint32(len(h)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, h...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

func converseFrame(name, payload string) string {
	return bedrockFrame(payload, ":event-type", name, ":content-type", "application/json", ":message-type", "event")
}

func exceptionFrame(name, payload string) string {
	return bedrockFrame(payload, ":exception-type", name, ":content-type", "application/json", ":message-type", "exception")
}

// invokeFrames wraps events of a model's own API.
func invokeFrames(events ...string) string {
	var b strings.Builder
	for _, chunk := range events {
		b.WriteString(converseFrame("chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(chunk))+`","p":"abcd"}`))
	}
	return b.String()
}

func readFrames(tb testing.TB, path, body string, split func(int) int) (*provider.Reader, answer) {
	tb.Helper()
	r := provider.NewReader(provider.Options{Path: path, ContentType: eventStream})
	return r, answerOf(readAll(tb, r, []byte(body), split))
}

func TestConverseEvents(t *testing.T) {
	t.Parallel()
	body := converseFrame("messageStart", `{"role":"assistant","p":"abc"}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"R"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"no"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"no"}}}`) +
		converseFrame("contentBlockStop", `{"contentBlockIndex":0}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"text":"T"}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"citation":{"title":"no"}}}`) +
		converseFrame("contentBlockStart", `{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"a","name":"f"}}}`) +
		converseFrame("contentBlockStart", `{"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"s","name":"no","type":"server_tool_use"}}}`) +
		converseFrame("contentBlockStart", `{"contentBlockIndex":4,"start":{"toolUse":{"toolUseId":"b","name":"g","type":"tool_use"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":4,"delta":{"toolUse":{"input":"{}"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":3,"delta":{"toolUse":{"input":"no"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"x\":1}"}}}`) +
		converseFrame("contentBlockDelta", `{"contentBlockIndex":5,"delta":{"toolResult":[{"text":"no"}]}}`) +
		converseFrame("messageStop", `{"stopReason":"tool_use"}`) +
		converseFrame("metadata", `{"usage":{"inputTokens":3,"outputTokens":4}}`)
	want := &event.Result{
		Finish: event.FinishToolCalls, ProviderFinish: "tool_use", Usage: &event.TokenUsage{Input: 3, Output: 4},
	}
	for _, path := range []string{conversePath, ""} {
		r, a := readFrames(t, path, body, whole)
		if a.text != "T" || a.reasoning != "R" || !reflect.DeepEqual(a.calls, []call{{"a", "f", `{"x":1}`}, {"b", "g", "{}"}}) ||
			!reflect.DeepEqual(a.result, want) || r.Format() != "bedrock-converse" {
			t.Errorf("%q: %+v, result %+v, format %q", path, a, a.result, r.Format())
		}
	}
}

func TestConverseEndsWithItsMetadataOrItsBody(t *testing.T) {
	t.Parallel()
	text := converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"T"}}`)
	stop := converseFrame("messageStop", `{"stopReason":"end_turn"}`)
	metadata := converseFrame("metadata", `{}`)
	for name, tt := range map[string]struct {
		rest string
		want event.Code
	}{
		"nothing":           {"", event.CodeUpstreamTruncated},
		"half a frame":      {stop[:len(stop)-1], event.CodeUpstreamTruncated},
		"stop":              {stop, ""},
		"metadata":          {stop + metadata + text, ""},
		"metadata broken":   {stop + converseFrame("metadata", `{`), ""},
		"stop broken":       {converseFrame("messageStop", `{`) + metadata, ""},
		"unknown event":     {converseFrame("other", `{}`) + stop, ""},
		"delta broken":      {converseFrame("contentBlockDelta", `{`), event.CodeInvalidUpstream},
		"text is no string": {converseFrame("contentBlockDelta", `{"delta":{"text":{"a":1}}}`), event.CodeInvalidUpstream},
		"corrupt":           {stop[:20] + "!" + stop[21:], event.CodeInvalidUpstream},
		"no frame":          {"data: {\"choices\":[]}\n\n", event.CodeInvalidUpstream},
	} {
		for _, split := range []func(int) int{whole, func(int) int { return 1 }} {
			_, a := readFrames(t, conversePath, text+tt.rest, split)
			if a.text != "T" || (a.err == nil) != (tt.want == "") || a.err != nil && a.err.Code != tt.want {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

func TestFramesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	text := converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"T"}}`)
	large := converseFrame("contentBlockDelta", `{"delta":{"text":"`+strings.Repeat("x", 3000)+`"}}`)
	for _, body := range []string{large, text + large} {
		r := provider.NewReader(provider.Options{Path: conversePath, ContentType: eventStream, MaxEvent: 2048})
		a := answerOf(readAll(t, r, []byte(body), func(int) int { return 100 }))
		if a.err == nil || a.err.Code != event.CodeEventTooLarge {
			t.Errorf("%+v", a)
		}
	}
}

func TestBedrockExceptionsHaveTheirStatus(t *testing.T) {
	t.Parallel()
	text := converseFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"T"}}`)
	for name, status := range map[string]int{
		"internalServerException":     500,
		"modelStreamErrorException":   424,
		"modelTimeoutException":       408,
		"throttlingException":         429,
		"validationException":         400,
		"serviceUnavailableException": 503,
		"somethingElseException":      502,
	} {
		exception := exceptionFrame(name, `{"message":"no luck"}`)
		for _, body := range []string{text + exception, exception, text + exception + text} {
			_, a := readFrames(t, conversePath, body, whole)
			want := `{"type":"` + name + `","message":"no luck"}`
			if a.err == nil || a.err.Code != event.CodeUpstreamError || a.err.Status != status || string(a.err.Upstream) != want {
				t.Errorf("%s: %+v", name, a.err)
			}
		}
	}
	body := text + bedrockFrame("", ":message-type", "error", ":error-code", "InternalError", ":error-message", "no luck")
	if _, a := readFrames(t, conversePath, body, whole); a.err == nil || a.err.Message != "no luck" || a.err.Status != 502 {
		t.Errorf("an error that is no exception: %+v", a.err)
	}
}

func TestModelsOfBedrock(t *testing.T) {
	t.Parallel()
	metrics := `"amazon-bedrock-invocationMetrics":{"inputTokenCount":3,"outputTokenCount":4}`
	for name, tt := range map[string]struct {
		events []string
		finish string
		usage  *event.TokenUsage
		id     string
	}{
		"Claude": {[]string{
			`{"type":"message_start","message":{"id":"i","model":"m","usage":{"input_tokens":7,"output_tokens":1}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hé"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":8}}`,
			`{"type":"message_stop",` + metrics + `}`,
		}, "end_turn", &event.TokenUsage{Input: 7, Output: 8}, "i"},
		"Claude, legacy": {[]string{
			`{"type":"completion","completion":"Hé","stop_reason":null,"stop":null}`,
			`{"type":"completion","completion":"","stop_reason":"stop_sequence","stop":"\n\nHuman:",` + metrics + `}`,
		}, "stop_sequence", &event.TokenUsage{Input: 3, Output: 4}, ""},
		"Nova": {[]string{
			`{"messageStart":{"role":"assistant"}}`,
			`{"contentBlockDelta":{"delta":{"text":"Hé"},"contentBlockIndex":0}}`,
			`{"contentBlockStop":{"contentBlockIndex":0}}`,
			`{"messageStop":{"stopReason":"end_turn"}}`,
			`{"metadata":{"usage":{"inputTokens":5,"outputTokens":6}},` + metrics + `}`,
		}, "end_turn", &event.TokenUsage{Input: 5, Output: 6}, ""},
		"Llama": {[]string{
			`{"generation":"H","prompt_token_count":10,"generation_token_count":1,"stop_reason":null}`,
			`{"generation":"é","prompt_token_count":null,"generation_token_count":2,"stop_reason":"length",` + metrics + `}`,
		}, "length", &event.TokenUsage{Input: 10, Output: 2}, ""},
		"Titan": {[]string{
			`{"outputText":"Hé","index":0,"totalOutputTextTokenCount":null,"completionReason":null,"inputTextTokenCount":10}`,
			`{"outputText":"","index":0,"totalOutputTextTokenCount":2,"completionReason":"FINISH","inputTextTokenCount":10,` + metrics + `}`,
		}, "FINISH", &event.TokenUsage{Input: 10, Output: 2}, ""},
		"Mistral": {[]string{
			`{"outputs":[{"text":"Hé","stop_reason":null}]}`,
			`{"outputs":[{"text":"","stop_reason":"stop"}],` + metrics + `}`,
		}, "stop", &event.TokenUsage{Input: 3, Output: 4}, ""},
		"Cohere, legacy": {[]string{
			`{"index":0,"is_finished":false,"text":"Hé"}`,
			`{"finish_reason":"COMPLETE","is_finished":true,` + metrics + `}`,
		}, "COMPLETE", &event.TokenUsage{Input: 3, Output: 4}, ""},
		"Cohere": {[]string{
			`{"is_finished":false,"event_type":"text-generation","text":"Hé"}`,
			`{"is_finished":true,"event_type":"stream-end","finish_reason":"COMPLETE","response":{"generation_id":"i"},` + metrics + `}`,
		}, "COMPLETE", &event.TokenUsage{Input: 3, Output: 4}, "i"},
		"DeepSeek": {[]string{
			`{"choices":[{"text":"Hé","stop_reason":null}]}`,
			`{"choices":[{"text":"","stop_reason":"stop"}],` + metrics + `}`,
		}, "stop", &event.TokenUsage{Input: 3, Output: 4}, ""},
		"OpenAI": {[]string{
			`{"id":"i","choices":[{"index":0,"delta":{"content":"Hé"}}]}`,
			`{"id":"i","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + metrics + `}`,
		}, "stop", &event.TokenUsage{Input: 3, Output: 4}, "i"},
	} {
		for _, path := range []string{invokePath, ""} {
			body := invokeFrames(tt.events[0]) + converseFrame("other", "{}") + invokeFrames(tt.events[1:]...) + invokeFrames(tt.events...)
			r, a := readFrames(t, path, body, whole)
			if a.text != "Hé" || a.result == nil || a.result.ProviderFinish != tt.finish || !reflect.DeepEqual(a.result.Usage, tt.usage) {
				t.Errorf("%s: %+v, result %+v", name, a, a.result)
			}
			if r.Format() != "bedrock-invoke" || r.ResponseID() != tt.id {
				t.Errorf("%s: format %q, id %q", name, r.Format(), r.ResponseID())
			}
		}
		_, a := readFrames(t, invokePath, invokeFrames(tt.events[0]), whole)
		if a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("%s, cut off: %+v", name, a)
		}
	}
}

func TestOneReasonEndsAllGenerations(t *testing.T) {
	t.Parallel()
	_, a := readFrames(t, invokePath, invokeFrames(
		`{"index":0,"is_finished":false,"text":"a"}`, `{"index":1,"is_finished":false,"text":"b"}`,
		`{"index":2,"is_finished":true,"finish_reason":"COMPLETE"}`,
		`{"finish_reason":"MAX_TOKENS","is_finished":true,"amazon-bedrock-invocationMetrics":{}}`), whole)
	want := []event.ChoiceFinish{{Choice: 0, Finish: event.FinishLength}, {Choice: 1, Finish: event.FinishLength}, {Choice: 2, Finish: event.FinishStop}}
	if a.result == nil || !reflect.DeepEqual(a.result.Choices, want) {
		t.Errorf("%+v", a.result)
	}
}

func TestChunksThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	text := invokeFrames(`{"generation":"T","stop_reason":null}`)
	for _, rest := range []string{
		converseFrame("chunk", `{"bytes":"%%%"}`),
		converseFrame("chunk", `{"bytes":5}`),
		converseFrame("chunk", `{`),
		invokeFrames(`{"generation":`),
		invokeFrames(`{"generation":5}`),
		invokeFrames(`Sure`),
	} {
		if _, a := readFrames(t, invokePath, text+rest, whole); a.text != "T" || a.err == nil || a.err.Code != event.CodeInvalidUpstream {
			t.Errorf("%q: %+v", rest, a)
		}
	}
}

// Agents stream in the same frames, and chunks too.
func TestFramesOfOthersArePassedOnUntouched(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	trace := converseFrame("trace", `{"trace":{"orchestrationTrace":{"text":"`+strings.Repeat("\n\n:\n", 40)+`"}}}`)
	for name, body := range map[string]string{
		"agent, trace first":  trace + invokeFrames("Sure, "),
		"agent, chunk first":  invokeFrames("Sure, ", "here") + trace,
		"JSON of no model":    invokeFrames(`{"answer":"x"}`),
		"no base64":           converseFrame("chunk", `{"bytes":"Sure!"}`),
		"another service":     converseFrame("TranscriptEvent", `{"Transcript":{}}`) + trace,
		"an exception first":  exceptionFrame("BadRequestException", `{"Message":"no"}`),
		"then something else": exceptionFrame("BadRequestException", `{"Message":"no"}`) + trace,
		"metadata of text":    converseFrame("metadata", "text"),
		"many line ends":      exceptionFrame("BadRequestException", "{"+strings.Repeat("\n", 350)+"}") + trace,
	} {
		for _, split := range []func(int) int{whole, func(int) int { return 1 }, randomPieces(random)} {
			passed, state := passThrough(t, provider.Options{ContentType: eventStream, MaxEvent: 512}, []byte(body), split)
			if state != provider.Opaque || passed != body {
				t.Errorf("%s: state %d, passed on %d of %d bytes", name, state, len(passed), len(body))
			}
		}
	}
	corrupt := trace[:30] + "!" + trace[31:]
	if passed, state := passThrough(t, provider.Options{ContentType: eventStream}, []byte(corrupt), whole); state != provider.Opaque || passed != corrupt {
		t.Errorf("corrupt: state %d, passed on %d of %d bytes", state, len(passed), len(corrupt))
	}
	if _, a := readFrames(t, conversePath, corrupt, whole); a.err == nil || a.err.Code != event.CodeInvalidUpstream {
		t.Errorf("corrupt, on the path of an LLM: %+v", a)
	}
}

func TestFramesAreKnownWhateverTheContentType(t *testing.T) {
	t.Parallel()
	body := converseFrame("messageStart", `{"role":"assistant"}`)
	for _, contentType := range []string{eventStream, "", "application/octet-stream", "text/event-stream"} {
		r := provider.NewReader(provider.Options{ContentType: contentType})
		for i := range len(body) {
			r.Feed([]byte{body[i]})
			if early := i < len(body)-1; early != (r.State() == provider.Undetermined) {
				t.Fatalf("%q: state %d after byte %d of %d", contentType, r.State(), i+1, len(body))
			}
		}
		if r.Format() != "bedrock-converse" {
			t.Errorf("%q: format %q", contentType, r.Format())
		}
	}
}
