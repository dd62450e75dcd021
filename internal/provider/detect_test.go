package provider_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// Events that many tests put together.
const (
	chatChunk  = `data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}` + "\n\n"
	chatFinish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	chatDone   = "data: [DONE]\n\n"
	chatError  = `data: {"error":{"message":"no luck","type":"server_error"}}` + "\n\n"
	emptyFirst = `data: {"choices":[],"id":"","model":"","object":"","prompt_filter_results":[]}` + "\n\n"
	opaqueData = `data: {"jsonrpc":"2.0","id":1}` + "\n\n"

	chatPath = "/v1/chat/completions"
)

func newReader(path string) *provider.Reader {
	return provider.NewReader(provider.Options{Path: path, ContentType: "text/event-stream"})
}

func TestNothingIsDecidedByWhatCarriesNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]string{
		"comments":       strings.Repeat(": OPENROUTER PROCESSING\n\n", 17),
		"bare comment":   ":\n\n",
		"byte mark":      "\xef\xbb\xbf",
		"retry":          "retry: 3000\n\n",
		"id":             "id: 7\n\n",
		"null":           "data: null\n\n",
		"empty data":     "data:\n\n",
		"named ping":     "event: ping\ndata: {}\n\n",
		"typed ping":     "data: {\"type\": \"ping\"}\n\n",
		"empty choices":  emptyFirst,
		"choice alone":   `data: {"choices":[{"index":0,"content_filter_results":{}}]}` + "\n\n",
		"error, no path": chatError,
	} {
		r := newReader("")
		if events := r.Feed([]byte(start)); len(events) != 0 || r.State() != provider.Undetermined {
			t.Errorf("%s: %d events, state %d", name, len(events), r.State())
		}
		if r.Held() != nil || r.Format() != "" {
			t.Errorf("%s: held %q, format %q before anything is decided", name, r.Held(), r.Format())
		}
		if name == "error, no path" {
			continue
		}
		events := r.Feed([]byte(chatChunk))
		if len(events) != 1 || string(events[0].Text) != "Hi" || r.Format() != "openai-chat" {
			t.Errorf("%s, then a chunk: %d events, format %q", name, len(events), r.Format())
		}
	}
}

func TestFormatIsKnownByTheFirstEvent(t *testing.T) {
	t.Parallel()
	for first, want := range map[string]string{
		chatChunk: "openai-chat",
		`data:{"choices":[{"text":"x","delta":{"content":"x"}}]}` + "\n\n":               "openai-chat",
		`data: {"choices":[{"message":{"content":"x"}}]}` + "\r\n\r\n":                   "openai-chat",
		`data: {"object":"chat.completion.chunk"}` + "\r\r":                              "openai-chat",
		`data: {"choices":[{"text":"x"}]}` + "\n\n":                                      "openai-completions",
		`data: {"type":"message_start","message":{}}` + "\n\n":                           "anthropic-messages",
		"event: message_start\ndata: {broken\n\n":                                        "anthropic-messages",
		`data: {"type":"completion","completion":"x"}` + "\n\n":                          "anthropic-messages",
		`{"message":{"content":"x"},"done":false}` + "\n":                                "ollama-chat",
		`data: {"type":"response.created","response":{}}` + "\n\n":                       "openai-responses",
		`data: {"item":{},"type":"response.output_item.added"}` + "\n\n":                 "openai-responses",
		"event: response.created\ndata: {broken\n\n":                                     "openai-responses",
		`data: {"object":"text_completion","choices":[]}` + "\n\n":                       "openai-completions",
		`data: {"candidates":[]}` + "\r\n\r\n":                                           "gemini",
		`data: {"promptFeedback":{"blockReason":"SAFETY"}}` + "\n\n":                     "gemini",
		`data: {"usageMetadata":{}}` + "\n\n":                                            "gemini",
		`[{"candidates":[]}`:                                                             "gemini",
		`data: {"interaction":{},"event_type":"interaction.created"}` + "\n\n":           "gemini-interactions",
		`data: {"event_type":"step.start","step":{}}` + "\n\n":                           "gemini-interactions",
		`data: {"type":"message-start","id":"i"}` + "\n\n":                               "cohere-v2",
		"event: tool-plan-delta\ndata: {broken\n\n":                                      "cohere-v2",
		`{"event_type":"stream-start","is_finished":false}` + "\n":                       "cohere-v1",
		`data:{"token":{"text":"x","special":false},"generated_text":null}` + "\n\n":     "tgi",
		`data: {"content":"x","stop":false}` + "\n\n":                                    "llamacpp-completion",
		"event: thread.run.created\ndata: {\"object\":\"thread.run\"}\n\n":               "openai-assistants",
		`data: {"object":"thread.message.delta","delta":{}}` + "\n\n":                    "openai-assistants",
		"id: 1\nevent: message\n" + `data: {"results":[{"generated_text":""}]}` + "\n\n": "watsonx",
		`{"response":"x","done":false}` + "\n":                                           "ollama-generate",
	} {
		r := newReader("")
		r.Feed([]byte(first))
		if r.State() != provider.Recognized || r.Format() != want {
			t.Errorf("%q: state %d, format %q", first, r.State(), r.Format())
		}
	}
}

func TestWhatIsNoKnownStreamIsPassedOn(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"unknown JSON":      opaqueData,
		"content alone":     `data: {"content":"x"}` + "\n\n",
		"stop is no flag":   `data: {"content":"x","stop":"\n"}` + "\n\n",
		"results of others": `data: {"results":[{"title":"x"}]}` + "\n\n",
		"unknown name":      "event: output\ndata: Sure\n\n",
		"an error":          `data: {"code":404,"message":"no such room"}` + "\n\n",
	} {
		r := newReader("/events")
		if events := r.Feed([]byte(body)); len(events) != 0 || r.State() != provider.Opaque || string(r.Held()) != body && name != "an error" {
			if name != "an error" || r.State() == provider.Recognized {
				t.Errorf("%s: %d events, state %d", name, len(events), r.State())
			}
		}
		// On the path of an LLM API it may be a gateway's, until there are too
		// many of them.
		r = newReader(chatPath)
		passed := 0
		for r.State() == provider.Undetermined && passed < 100 {
			r.Feed([]byte(body))
			passed++
		}
		if name == "an error" {
			if r.State() != provider.Recognized {
				t.Errorf("%s: state %d", name, r.State())
			}
			continue
		}
		if got := string(r.Held()); r.State() != provider.Opaque || got != strings.Repeat(body, passed) || passed < 5 {
			t.Errorf("%s: state %d, held %d bytes after %d", name, r.State(), len(got), passed)
		}
	}
}

func TestWhatIsSurelyNoKnownStreamIsPassedOnAtOnce(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"image":             `data: {"type":"image_generation.completed","usage":{"input_tokens":1}}` + "\n\n",
		"lines of others":   `{"event_type":"order.created"}` + "\n",
		"text":              "data: Sure\n\n",
		"typed differently": `data: {"type":"transcript.text.delta","delta":"x"}` + "\n\n",
		"array":             "[1,2]",
		"JSON body":         "{\n  \"choices\": []\n}",
		"other lines":       `{"status":"pulling"}` + "\n",
	} {
		r := newReader(chatPath)
		if events := r.Feed([]byte(body)); len(events) != 0 || r.State() != provider.Opaque {
			t.Errorf("%s: %d events, state %d", name, len(events), r.State())
		}
		if got := string(r.Held()); got != body {
			t.Errorf("%s: held %q", name, got)
		}
		if r.Feed([]byte(chatChunk)); r.Held() != nil || len(r.Close(true)) != 0 {
			t.Errorf("%s: more than the bytes that decided", name)
		}
	}
}

func TestContentTypesThatRelaysRewriteDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contentType, body string
		want              provider.State
	}{
		{"text/plain", chatChunk, provider.Recognized},
		{"", ": ping\n\n" + chatChunk, provider.Recognized},
		{"application/x-ndjson", chatChunk, provider.Recognized},
		{"text/event-stream", `{"response":"x","done":false}` + "\n", provider.Recognized},
		{"text/plain", "da", provider.Undetermined},
		{"text/plain", "Ollama is running", provider.Opaque},
		{"", "<html>", provider.Opaque},
		{"application/json", `{"id":"x","choices":[]}` + "\n", provider.Opaque},
		{"application/vnd.amazon.eventstream", "\x00\x00\x00\x70", provider.Undetermined},
		{"application/vnd.amazon.eventstream", "\x00\x00\x00\x70\x00\x00\x00\x4bnone", provider.Opaque},
		{"application/vnd.amazon.eventstream", "binary", provider.Opaque},
	} {
		r := provider.NewReader(provider.Options{Path: chatPath, ContentType: tt.contentType})
		for i := range len(tt.body) {
			r.Feed([]byte{tt.body[i]})
		}
		if r.State() != tt.want {
			t.Errorf("%q with %q: state %d, want %d", tt.body, tt.contentType, r.State(), tt.want)
		}
	}
}

// cases: litellm#32237, #24005, any-llm#847.
func TestErrorAsTheFirstEventFailsTheResponse(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"on an LLM path":  chatError,
		"then DONE":       chatError + chatDone,
		"named":           "event: error\ndata: {\"message\":\"no luck\"}\n\n",
		"string":          `data: {"error":"no luck"}` + "\n\n",
		"older vLLM":      `data: {"object":"error","message":"no luck","code":500}` + "\n\n",
		"llama.cpp field": `error: {"message":"no luck","code":500}` + "\n\n",
		"line":            `{"error":"no luck"}` + "\n",
		"not terminated":  `data: {"error":{"message":"no luck"}}`,
	} {
		r := newReader(chatPath)
		a := answerOf(readAll(t, r, []byte(body), whole))
		if a.err == nil || a.err.Code != event.CodeUpstreamError || a.err.Message != "no luck" {
			t.Errorf("%s: %+v", name, a)
		}
		if r.Format() != "openai-chat" {
			t.Errorf("%s: format %q", name, r.Format())
		}
	}
}

func TestErrorWithoutAPathWaitsForWhatFollows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rest string
		want provider.State
	}{
		"nothing":       {"", provider.Opaque},
		"unknown event": {opaqueData, provider.Opaque},
		"DONE":          {chatDone, provider.Recognized},
		"a chunk":       {chatChunk, provider.Recognized},
	} {
		r := newReader("/events")
		events := readAll(t, r, []byte(chatError+tt.rest), whole)
		if r.State() != tt.want {
			t.Errorf("%s: state %d", name, r.State())
		}
		if failed := len(events) == 1 && events[0].Kind == event.Failed; failed != (tt.want == provider.Recognized) {
			t.Errorf("%s: %+v", name, events)
		}
	}
	anthropic := `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n\n"
	if a := answerOf(readString(t, "", anthropic)); a.err == nil || a.err.Status != 529 {
		t.Errorf("an error of Anthropic's: %+v", a)
	}
}

func TestDoneBeforeAnyOutputIsNoEnd(t *testing.T) {
	t.Parallel()
	role := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	for _, body := range []string{chatDone, role + chatDone, emptyFirst + chatDone, role + "data: done\n\n"} {
		a := answerOf(readString(t, chatPath, body))
		if a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
			t.Errorf("%q: %+v", body, a)
		}
	}
	r := newReader("/events")
	if r.Feed([]byte(chatDone)); r.State() != provider.Opaque {
		t.Errorf("elsewhere: state %d", r.State())
	}
}

// cases: a runner that is killed ends the body with nothing.
func TestBodyWithoutAnEventIsTruncatedOnAnLLMPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatPath, "/v1/messages", "/v1/responses", "/v1/completions", "/api/chat", "/api/generate"} {
		for _, body := range []string{"", ":\n\n", "event: ping\ndata: {}\n\n", "data: null\n\n", `data: {"choi`, "{\"mod"} {
			if a := answerOf(readString(t, path, body)); a.err == nil || a.err.Code != event.CodeUpstreamTruncated || a.err.Status != 502 {
				t.Errorf("%s, %q: %+v", path, body, a)
			}
			passed, state := passThrough(t, provider.Options{ContentType: "text/event-stream"}, []byte(body), whole)
			if state != provider.Opaque || passed != body {
				t.Errorf("elsewhere, %q: state %d, passed on %q", body, state, passed)
			}
		}
	}
}

func TestEmptyChoicesAloneAreTakenForChat(t *testing.T) {
	t.Parallel()
	r := newReader("")
	a := answerOf(readAll(t, r, []byte(emptyFirst), whole))
	if a.err == nil || a.err.Code != event.CodeUpstreamTruncated {
		t.Errorf("then nothing: %+v", a)
	}
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 4096
	feed := func(piece string, times int) (*provider.Reader, []event.Event) {
		r := provider.NewReader(provider.Options{Path: chatPath, ContentType: "text/event-stream", MaxEvent: limit})
		for range times {
			if events := r.Feed([]byte(piece)); len(events) > 0 {
				return r, events
			}
		}
		return r, nil
	}
	for name, piece := range map[string]string{
		"one long line":  strings.Repeat("x", limit/4),
		"unknown fields": "junk: " + strings.Repeat("x", 100) + "\n",
		"one long event": "data: " + strings.Repeat("x", 100) + "\n",
	} {
		if _, events := feed(piece, 100); len(events) != 1 || events[0].Err == nil || events[0].Err.Code != event.CodeEventTooLarge {
			t.Errorf("%s: %+v", name, events)
		}
	}
	if r, events := feed(emptyFirst, 100); len(events) != 0 || r.Format() != "openai-chat" {
		t.Errorf("events that tell nothing: %+v, format %q", events, r.Format())
	}
}

func TestCommentsDoNotCountAndDoNotPileUp(t *testing.T) {
	t.Parallel()
	const limit = 512
	for _, comment := range []string{": ping\n\n", ":\r\n\r\n", ":\r", ": " + strings.Repeat("x", 100), "\n"} {
		r := provider.NewReader(provider.Options{ContentType: "text/event-stream", MaxEvent: limit})
		r.Feed([]byte("data: {\"choices\":[]}\n\nevent: x\r\n"))
		for range 1000 {
			if events := r.Feed([]byte(comment)); len(events) != 0 || r.State() != provider.Undetermined {
				t.Fatalf("%q: %v, state %d", comment, events, r.State())
			}
		}
		r.Feed([]byte("\n\nevent: y\n" + opaqueData))
		if r.State() != provider.Opaque || len(r.Held()) > 2*limit || !strings.HasSuffix(string(r.Held()), opaqueData) {
			t.Errorf("%q: state %d, held %d bytes", comment, r.State(), len(r.Held()))
		}
	}
}

func TestCommentThatIsDroppedStaysAComment(t *testing.T) {
	t.Parallel()
	long := ": " + strings.Repeat("x", 600)
	for name, pieces := range map[string][]string{
		"open":              {long, `data: {"choices":[{"delta":{"content":"no"}}]}` + "\n\n" + chatChunk},
		"between CR and LF": {`data: {"choices":[{"delta":` + "\r\n" + long + "\r", "\n" + `data: {"content":"Hi"}}]}` + "\n\n"},
	} {
		r := provider.NewReader(provider.Options{ContentType: "text/event-stream", MaxEvent: 512})
		var events []event.Event
		for _, piece := range pieces {
			events = appendEvents(t, events, r.Feed([]byte(piece)))
		}
		if a := answerOf(events); a.text != "Hi" || a.err != nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Whatever number of blank lines comes first costs a look at each: this test
// would take an hour if all were looked at with every line.
func TestBlankLinesBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"", "\uFEFF"} {
		r := provider.NewReader(provider.Options{ContentType: "text/event-stream", MaxEvent: 8 << 20})
		body := start + strings.Repeat("\r\n", 2<<20) + benchChunk + "data: [DONE]\n\n"
		if events := readAll(t, r, []byte(body), func(int) int { return 4 << 10 }); len(events) != 2 || r.Format() != "openai-chat" {
			t.Errorf("%d events of %q", len(events), r.Format())
		}
	}
}
