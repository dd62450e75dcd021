package llmsim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// ollama asks a backend with all of Ollama's ways, which thinks for two tokens
// and answers with three.
func ollama(path, body string) string {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 3, Reasoning: 2, Server: llmsim.ServerOllama}}
	return post(b, path, body).Body.String()
}

func TestOllamaRoleIsInEveryChunk(t *testing.T) {
	events := splitEvents(t, ollama("/v1/chat/completions", `{"stream":true}`))
	if len(events) != 7 { // five tokens, the finish and [DONE]
		t.Fatalf("%d events", len(events))
	}
	for _, e := range events[:6] {
		if !strings.Contains(e.data, `"delta":{"role":"assistant","content":"`) || !strings.Contains(e.data, `"system_fingerprint":"fp_ollama"`) {
			t.Error(e.data)
		}
	}
}

// A call comes whole, in one chunk.
func TestOllamaToolCallIsWhole(t *testing.T) {
	body := `{"stream":true,` + tools + `}`
	for path, want := range map[string]int{
		"/api/chat":            1,
		"/v1/chat/completions": 1,
		"/v1/messages":         1,
		"/v1/responses":        4, // once more in each event that follows
	} {
		got := ollama(path, body)
		n := strings.Count(got, "days")
		if n != want {
			t.Errorf("%s: the arguments come in %d events, want %d: %s", path, n, want, got)
		}
	}
}

// A call after thoughts has their index, which is still open, and another one is
// closed in the end.
func TestOllamaToolCallAfterThoughts(t *testing.T) {
	var got []string
	for _, e := range splitEvents(t, ollama("/v1/messages", `{"stream":true,`+tools+`}`)) {
		var data struct{ Index *int }
		decode(t, e.data, &data)
		if data.Index != nil {
			got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(e.name, "content_block_"), *data.Index))
		}
	}
	want := []string{"start 0", "delta 0", "delta 0", "start 0", "delta 0", "stop 0", "stop 1"}
	if !slices.Equal(got, want) {
		t.Errorf("the blocks are %q, want %q", got, want)
	}
}

// While the model thinks, completions have chunks without text and usage.
func TestOllamaCompletionsHideThoughts(t *testing.T) {
	body := `{"stream":true,"stream_options":{"include_usage":true}}`
	events := splitEvents(t, ollama("/v1/completions", body))
	const noUsage = `"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`
	for i, text := range []string{`""`, `""`, `"1."`, `" A"`, `" stream"`, `""`} {
		want := `"choices":[{"text":` + text + `,"index":0,"finish_reason":`
		if !strings.Contains(events[i].data, want) || !strings.Contains(events[i].data, noUsage) {
			t.Errorf("chunk %d has no %s: %s", i, want, events[i].data)
		}
	}
	if last := events[6].data; !strings.Contains(last, `"choices":[]`) || !strings.Contains(last, `"completion_tokens":5`) {
		t.Errorf("the usage is %s", last)
	}
}

// The tokens around the thoughts leave lines without text in /api/generate.
func TestOllamaGenerateHasBlankLines(t *testing.T) {
	lines := strings.Split(ollama("/api/generate", `{}`), "\n")
	blank := func(line string) bool { return strings.HasSuffix(line, `"response":"","done":false}`) }
	for i, want := range []bool{true, false, false, true, false, false, false} {
		if blank(lines[i]) != want {
			t.Errorf("line %d is %s", i, lines[i])
		}
	}
}

func TestOllamaSaysWhyAfterDone(t *testing.T) {
	for _, path := range []string{"/api/chat", "/api/generate"} {
		for _, body := range []string{`{}`, `{"stream":false}`} {
			if got := ollama(path, body); !strings.Contains(got, `"done":true,"done_reason":"stop",`) {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
}

// The first count of messages is an estimate, and too low.
func TestOllamaEstimatesInputTokens(t *testing.T) {
	events := splitEvents(t, ollama("/v1/messages", `{"stream":true,"system":"`+strings.Repeat("x", 400)+`"}`))
	var first struct {
		Message struct {
			Usage anthropicUsage `json:"usage"`
		} `json:"message"`
	}
	var last struct {
		Usage anthropicUsage `json:"usage"`
	}
	decode(t, events[0].data, &first)
	decode(t, events[len(events)-2].data, &last)
	if first.Message.Usage.In < 1 || first.Message.Usage.In >= last.Usage.In {
		t.Errorf("%d input tokens, then %d", first.Message.Usage.In, last.Usage.In)
	}
}

// What a response repeats in its end is what it has streamed.
func TestOllamaResponsesRepeat(t *testing.T) {
	for _, members := range []string{`"x":0`, tools, `"max_output_tokens":1`, `"max_output_tokens":3`} {
		body := ollama("/v1/responses", `{"stream":true,`+members+`}`)
		events := splitEvents(t, body)
		var last struct{ Response responsesObject }
		decode(t, events[len(events)-1].data, &last)
		got, want := readResponses(t, body), wholeResponses(last.Response)
		if got.text != want.text || got.reasoning != want.reasoning || got.tool != want.tool || got.arguments != want.arguments {
			t.Errorf("%s: %+v, and in the end %+v", members, got, want)
		}
	}
}

func TestOllamaResponsesRepeatTheTools(t *testing.T) {
	body := ollama("/v1/responses", `{"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]}`)
	want := `"tools":[{"description":null,"name":"f","parameters":{"type":"object"},"strict":null,"type":"function"}]`
	if !strings.Contains(body, want) {
		t.Errorf("no %s in %s", want, body)
	}
}

// A tool's result is answered with text.
func TestOllamaResponsesAfterToolResult(t *testing.T) {
	for input, want := range map[string]string{
		`"hi"`:                                   "get_weather",
		`[]`:                                     "get_weather",
		`[{"type":"message"}]`:                   "get_weather",
		`[{"type":"function_call_output"}]`:      "",
		`[{"type":"x"},{"type":"message"}]`:      "get_weather",
		`[{"type":"function_call_output"},{}]`:   "get_weather",
		`[{},{"type":"function_call_output"}]`:   "",
		`[{"role":"user"},{"role":"assistant"}]`: "get_weather",
	} {
		body := ollama("/v1/responses", `{`+tools+`,"input":`+input+`}`)
		if got := readWholeResponses(t, body); got.tool != want {
			t.Errorf("%s: it calls %q, want %q", input, got.tool, want)
		}
	}
}
