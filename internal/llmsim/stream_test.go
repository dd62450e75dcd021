package llmsim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

func TestAnswerIsTheText(t *testing.T) {
	for _, n := range []int{0, 1, 130} {
		for _, reasoning := range []int{0, 1, 40} {
			for _, d := range forms {
				t.Run(d.name, func(t *testing.T) {
					b := &llmsim.Backend{Options: llmsim.Options{Tokens: n, Reasoning: reasoning}}
					w := d.post(b, with(d.body, `"messages":[{"role":"user","content":"hi"}]`))
					got := d.read(t, w.Body.String())
					if got.text != llmsim.Text(n) {
						t.Errorf("text is %q\nwant %q", got.text, llmsim.Text(n))
					}
					if got.reasoning != d.reasoning(reasoning) {
						t.Errorf("reasoning is %q\nwant %q", got.reasoning, d.reasoning(reasoning))
					}
					if got.finish != d.stop || !got.ended || got.failure != "" {
						t.Errorf("the end is %+v", got)
					}
					if got.out != n+reasoning || got.in <= 0 {
						t.Errorf("usage is %d and %d, want some and %d", got.in, got.out, n+reasoning)
					}
				})
			}
		}
	}
}

func TestContentTypes(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 1}}
	for _, d := range forms {
		t.Run(d.name, func(t *testing.T) {
			streaming, whole := "text/event-stream; charset=utf-8", "application/json"
			switch {
			case d.native():
				streaming, whole = "application/x-ndjson", "application/json; charset=utf-8"
			case d.server == llmsim.ServerOllama:
				streaming = "text/event-stream"
			}
			want := whole
			if d.body == d.streaming {
				want = streaming
			}
			w := d.post(b, d.body)
			if got := w.Header().Get("Content-Type"); got != want || w.Code != http.StatusOK {
				t.Errorf("status %d, Content-Type %q, want %q", w.Code, got, want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	limits := map[string]string{
		"/v1/chat/completions": `"max_completion_tokens":7`,
		"/v1/completions":      `"max_tokens":7`,
		"/v1/messages":         `"max_tokens":7`,
		"/v1/responses":        `"max_output_tokens":7`,
		"/api/chat":            `"options":{"num_predict":7}`,
		"/api/generate":        `"options":{"num_predict":7}`,
	}
	for _, reasoning := range []int{0, 3, 20} {
		for _, d := range forms {
			t.Run(d.name, func(t *testing.T) {
				b := &llmsim.Backend{Options: llmsim.Options{Tokens: 10, Reasoning: reasoning}}
				got := d.read(t, d.post(b, with(d.body, limits[d.path])).Body.String())
				if got.finish != d.length || got.out != 7 || !got.ended {
					t.Errorf("the end is %+v, want %s after 7 tokens", got, d.length)
				}
				if got.reasoning != d.reasoning(min(reasoning, 7)) || got.text != llmsim.Text(7-min(reasoning, 7)) {
					t.Errorf("the text is %q after %q", got.text, got.reasoning)
				}
			})
		}
	}
}

func TestLimitThatIsNotReached(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 5}}
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"max_tokens":5}`,
		"/api/chat":            `{"stream":false,"options":{"num_predict":-1}}`,
	} {
		if got := post(b, path, body).Body.String(); strings.Contains(got, `"length"`) {
			t.Errorf("%s with %s is cut: %s", path, body, got)
		}
	}
}

const tools = `"tools":[{"name":"get_weather","function":{"name":"get_weather"}},{"name":"get_time","function":{"name":"get_time"}}]`

func TestToolCall(t *testing.T) {
	for _, reasoning := range []int{0, 2} {
		for _, d := range forms {
			t.Run(d.name, func(t *testing.T) {
				if d.toolCall == "" {
					return // it has no tools
				}
				b := &llmsim.Backend{Options: llmsim.Options{Tokens: 10, Reasoning: reasoning}}
				got := d.read(t, d.post(b, with(d.body, tools)).Body.String())
				if got.tool != "get_weather" || got.arguments != llmsim.ToolArguments {
					t.Errorf("the call is %s(%s)", got.tool, got.arguments)
				}
				if got.finish != d.toolCall || got.text != "" || got.reasoning != d.reasoning(reasoning) || !got.ended {
					t.Errorf("the rest is %+v", got)
				}
			})
		}
	}
}

func TestToolChoice(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 10}}
	for _, c := range []struct{ name, path, members, want string }{
		{"auto", "/v1/chat/completions", `"tool_choice":"auto"`, "get_weather"},
		{"required", "/v1/chat/completions", `"tool_choice":"required"`, "get_weather"},
		{"none", "/v1/chat/completions", `"tool_choice":"none"`, ""},
		{"named", "/v1/chat/completions", `"tool_choice":{"type":"function","function":{"name":"get_time"}}`, "get_time"},
		{"auto", "/v1/messages", `"tool_choice":{"type":"auto"}`, "get_weather"},
		{"none", "/v1/messages", `"tool_choice":{"type":"none"}`, ""},
		{"named", "/v1/messages", `"tool_choice":{"type":"tool","name":"get_time"}`, "get_time"},
		{"result", "/v1/chat/completions", `"messages":[{"role":"tool","content":"7"}]`, ""},
		{"result", "/api/chat", `"stream":false,"messages":[{"role":"tool","content":"7"}]`, ""},
		{"result", "/v1/messages", `"messages":[{"role":"user","content":[{"type":"tool_result","content":"7"}]}]`, ""},
		{"question", "/v1/messages", `"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`, "get_weather"},
		{"no tools", "/api/generate", `"stream":false`, ""},
	} {
		t.Run(c.name+c.path, func(t *testing.T) {
			body := post(b, c.path, "{"+tools+","+c.members+"}").Body.String()
			for _, tool := range []string{"get_weather", "get_time"} {
				if got := strings.Contains(body, tool); got != (tool == c.want) {
					t.Errorf("calls %s: %t, want a call of %q, in %s", tool, got, c.want, body)
				}
			}
			if c.want == "" && !strings.Contains(body, "A stream is a brook") {
				t.Errorf("no text in %s", body)
			}
		})
	}
}

func TestChoices(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 50}}
	d := dialects[0]
	for _, c := range []struct {
		name, body string
		read       func(*testing.T, string) answer
	}{{"stream", d.streaming, d.readStream}, {"whole", d.whole, d.readWhole}} {
		t.Run(c.name, func(t *testing.T) {
			got := c.read(t, post(b, d.path, with(c.body, `"n":3`)).Body.String())
			if got.text != llmsim.Text(50) || len(got.others) != 2 ||
				got.others[0] != llmsim.ChoiceText(1, 50) || got.others[1] != llmsim.ChoiceText(2, 50) {
				t.Errorf("the texts are %q and %q", got.text, got.others)
			}
			if got.out != 150 {
				t.Errorf("usage is %d, want 150", got.out)
			}
		})
	}
}

func TestUsageOnlyWhenAsked(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 2}}
	for _, d := range dialects {
		if !strings.HasSuffix(d.path, "/completions") {
			continue
		}
		if body := d.post(b, `{"stream":true}`).Body.String(); strings.Contains(body, "usage") {
			t.Errorf("%s: usage in %s", d.name, body)
		}
	}
}

func TestModelIsThatOfTheRequest(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 2}}
	for _, d := range forms {
		t.Run(d.name, func(t *testing.T) {
			if got := d.post(b, with(d.body, `"model":"my \"model\""`)).Body.String(); !strings.Contains(got, `"model":"my \"model\""`) {
				t.Errorf("the model is another in %s", got)
			}
		})
	}
}

func TestGetIsAStream(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 12}}
	for _, d := range dialects {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, received(http.MethodGet, d.path, "", d.header()...))
		if got := d.readStream(t, w.Body.String()); got.text != llmsim.Text(12) || !got.ended {
			t.Errorf("%s: %+v", d.name, got)
		}
	}
}

func TestOpenAIChunksAreAsLongAsRealOnes(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 300}}
	body := post(b, "/v1/chat/completions", `{"stream":true}`).Body.String()
	if mean := len(body) / 302; mean < 270 || mean > 340 {
		t.Errorf("%d bytes, recordings have about 300", mean)
	}
}

func TestAnthropicPingsThird(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 3, Reasoning: 1}}
	events := splitEvents(t, post(b, "/v1/messages", `{"stream":true}`).Body.String())
	for i, want := range []string{"message_start", "content_block_start", "ping", "content_block_delta"} {
		if events[i].name != want {
			t.Errorf("event %d is %s, want %s", i, events[i].name, want)
		}
	}
}

// Ollama is written in Go and escapes what is special in HTML.
func TestOllamaEscapesHTML(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 100}}
	if body := post(b, "/api/chat", `{}`).Body.String(); !strings.Contains(body, `\u003c`) {
		t.Error("no escaped < in the stream")
	}
	if body := post(b, "/v1/chat/completions", `{"stream":true}`).Body.String(); strings.Contains(body, `\u003c`) {
		t.Error("an escaped < in OpenAI's stream")
	}
}

// The members of every event must be ones that recordings of the format have.
func TestMembersAreThoseOfRecordings(t *testing.T) {
	formats := map[string][]string{
		"/v1/chat/completions": {"openai-chat"},
		"/v1/messages":         {"anthropic-messages"},
		"/api/chat":            {"ollama-chat"},
		"/api/generate":        {"ollama-generate", "ollama-chat"},
	}
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 3, Reasoning: 2}}
	for _, d := range dialects {
		if d.server == llmsim.ServerOllama {
			continue // it is compared with the server itself, in test/ollama
		}
		t.Run(d.name, func(t *testing.T) {
			known := make(map[string]bool)
			switch d.path { // what a server has shown, but no recording
			case "/api/generate":
				known[".thinking"] = true
			case "/api/chat":
				known[".message.tool_calls[].id"] = true
				known[".message.tool_calls[].function.index"] = true
			}
			for _, rec := range corpus.Load(t, formats[d.path]...) {
				addMembers(known, string(rec.Body))
			}
			ours := make(map[string]bool)
			addMembers(ours, post(b, d.path, d.streaming).Body.String())
			addMembers(ours, post(b, d.path, with(d.streaming, tools)).Body.String())
			addMembers(ours, post(b, d.path, d.streaming, llmsim.HeaderFault, "error").Body.String())
			if len(ours) < 8 {
				t.Fatalf("only %d members", len(ours))
			}
			for path := range ours {
				if !known[path] {
					t.Errorf("no recording of %s has %s", formats[d.path], path)
				}
			}
		})
	}
}

// addMembers adds the paths of all members in the lines of a stream that are
// JSON. The arguments of a tool call are a model's, not the format's.
func addMembers(paths map[string]bool, body string) {
	for line := range strings.SplitSeq(body, "\n") {
		var v any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) == nil {
			addPaths(paths, "", v)
		}
	}
}

func addPaths(paths map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			paths[fmt.Sprintf("%s.%s", path, name)] = true
			if name != "arguments" {
				addPaths(paths, path+"."+name, member)
			}
		}
	case []any:
		for _, member := range v {
			addPaths(paths, path+"[]", member)
		}
	}
}
