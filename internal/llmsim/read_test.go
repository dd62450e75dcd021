package llmsim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// answer is what a client makes of a response.
type answer struct {
	text, reasoning string // of choice 0
	others          []string
	tool, arguments string
	finish          string
	in, out         int // usage, -1 where there was none
	ended           bool
	failure         string
}

// dialect is one way to ask for a response and to read it.
type dialect struct {
	name, path string
	// streaming and whole are bodies that ask for a stream and for none.
	streaming, whole string
	readStream       func(t *testing.T, body string) answer
	readWhole        func(t *testing.T, body string) answer
	// the words for the ways to end
	stop, length, toolCall string
	// failure is what a reader makes of an error in the stream, empty where there
	// is nothing to see.
	failure string
	server  llmsim.Server
}

const (
	failed  = "llmsim: the simulated model failed"
	noModel = "a chunk without a model"
)

var dialects = []dialect{
	{
		"openai", "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true}}`, `{}`,
		readOpenAI, readWholeOpenAI, "stop", "length", "tool_calls", failed, llmsim.ServerNone,
	},
	{
		"anthropic", "/v1/messages", `{"stream":true}`, `{}`,
		readAnthropic, readWholeAnthropic, "end_turn", "max_tokens", "tool_use", failed, llmsim.ServerNone,
	},
	{
		"ollama chat", "/api/chat", `{}`, `{"stream":false}`,
		readOllama, readOllama, "stop", "length", "stop", failed, llmsim.ServerNone,
	},
	{
		"ollama generate", "/api/generate", `{}`, `{"stream":false}`,
		readOllama, readOllama, "stop", "length", "", failed, llmsim.ServerNone,
	},
	{
		"ollama openai", "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true}}`, `{}`,
		readOpenAI, readWholeOpenAI, "stop", "length", "tool_calls", noModel, llmsim.ServerOllama,
	},
	{
		"ollama completions", "/v1/completions", `{"stream":true,"stream_options":{"include_usage":true}}`, `{}`,
		readOpenAI, readWholeOpenAI, "stop", "length", "", noModel, llmsim.ServerOllama,
	},
	{
		"ollama anthropic", "/v1/messages", `{"stream":true}`, `{}`,
		readAnthropic, readWholeAnthropic, "end_turn", "max_tokens", "tool_use", "", llmsim.ServerOllama,
	},
	{
		"ollama responses", "/v1/responses", `{"stream":true}`, `{}`,
		readResponses, readWholeResponses, "completed", "completed", "completed", "", llmsim.ServerOllama,
	},
}

// native reports whether the API is Ollama's own.
func (d dialect) native() bool { return strings.HasPrefix(d.path, "/api/") }

// headersWait reports whether the headers always come with the first token.
func (d dialect) headersWait() bool { return d.native() || d.server == llmsim.ServerOllama }

// reasoning returns what a reader sees of n tokens of reasoning.
func (d dialect) reasoning(n int) string {
	if d.path == "/v1/completions" {
		return ""
	}
	return llmsim.ReasoningText(n)
}

// header has what asks a backend for the dialect, as a list of names and values.
func (d dialect) header() []string {
	if d.server == llmsim.ServerNone {
		return nil
	}
	return []string{llmsim.HeaderServer, string(d.server)}
}

// post asks a backend in the dialect.
func (d dialect) post(b *llmsim.Backend, body string) *httptest.ResponseRecorder {
	return post(b, d.path, body, d.header()...)
}

// form is a dialect and one of its two ways to answer.
type form struct {
	dialect
	name, body string
	read       func(t *testing.T, body string) answer
}

var forms = func() (forms []form) {
	for _, d := range dialects {
		forms = append(
			forms,
			form{d, d.name + "/stream", d.streaming, d.readStream},
			form{d, d.name + "/whole", d.whole, d.readWhole},
		)
	}
	return forms
}()

// with returns a request body with more members.
func with(body, members string) string {
	if body == "{}" {
		return "{" + members + "}"
	}
	return strings.TrimSuffix(body, "}") + "," + members + "}"
}

// post asks a backend without a network in between. header is a list of names
// and values.
func post(b *llmsim.Backend, path, body string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, received(http.MethodPost, path, body, header...))
	return w
}

// received makes a request as a server gets it.
func received(method, path, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func decode(t *testing.T, data string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), v); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
}

// event is a server-sent event.
type event struct{ name, data string }

// splitEvents reads a stream of events that are all whole.
func splitEvents(t *testing.T, body string) []event {
	t.Helper()
	var events []event
	for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = name
			} else if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = data
			} else {
				t.Fatalf("unexpected line %q", line)
			}
		}
		events = append(events, e)
	}
	return events
}

type openAIMessage struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Ollama    string `json:"reasoning"` // the same at Ollama
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type openAIResponse struct {
	Model   string `json:"model"`
	Choices []struct {
		Index   int           `json:"index"`
		Text    string        `json:"text"` // of completions
		Delta   openAIMessage `json:"delta"`
		Message openAIMessage `json:"message"`
		Finish  string        `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		In  int `json:"prompt_tokens"`
		Out int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (a *answer) addOpenAI(chunk openAIResponse) {
	if chunk.Model == "" {
		a.failure = noModel
	}
	for _, c := range chunk.Choices {
		a.text += c.Text
		for _, m := range []openAIMessage{c.Delta, c.Message} {
			if c.Index > 0 {
				for len(a.others) < c.Index {
					a.others = append(a.others, "")
				}
				a.others[c.Index-1] += m.Content
				continue
			}
			a.text += m.Content
			a.reasoning += m.Reasoning + m.Ollama
			for _, call := range m.ToolCalls {
				a.tool += call.Function.Name
				a.arguments += call.Function.Arguments
			}
		}
		a.finish = c.Finish
	}
	if chunk.Usage != nil {
		a.in, a.out = chunk.Usage.In, chunk.Usage.Out
	}
	if chunk.Error != nil {
		a.failure = chunk.Error.Message
	}
}

func readOpenAI(t *testing.T, body string) answer {
	t.Helper()
	a := answer{in: -1, out: -1}
	for _, e := range splitEvents(t, body) {
		if a.ended {
			t.Errorf("event %q after the end", e.data)
		}
		if a.ended = e.data == "[DONE]"; a.ended {
			continue
		}
		var chunk openAIResponse
		decode(t, e.data, &chunk)
		a.addOpenAI(chunk)
	}
	return a
}

func readWholeOpenAI(t *testing.T, body string) answer {
	t.Helper()
	a := answer{in: -1, out: -1, ended: true}
	var whole openAIResponse
	decode(t, body, &whole)
	a.addOpenAI(whole)
	return a
}

type anthropicBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Partial  string          `json:"partial_json"`
	Finish   string          `json:"stop_reason"`
}

type anthropicUsage struct {
	In  int `json:"input_tokens"`
	Out int `json:"output_tokens"`
}

func readAnthropic(t *testing.T, body string) answer {
	t.Helper()
	a := answer{in: -1, out: -1}
	open := -1 // the content block that is open
	for _, e := range splitEvents(t, body) {
		var data struct {
			Type  string         `json:"type"`
			Index int            `json:"index"`
			Block anthropicBlock `json:"content_block"`
			Delta anthropicBlock `json:"delta"`
			Usage anthropicUsage `json:"usage"`
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		decode(t, e.data, &data)
		if data.Type != e.name {
			t.Errorf("event %s has data of type %s", e.name, data.Type)
		}
		switch e.name {
		case "content_block_start":
			// Ollama gives a call after thoughts the index of those.
			if open != -1 && open != data.Index {
				t.Errorf("block %d starts while block %d is open", data.Index, open)
			}
			open = data.Index
			a.tool += data.Block.Name
		case "content_block_delta":
			if open != data.Index {
				t.Errorf("a delta of block %d while %d is open", data.Index, open)
			}
			a.text += data.Delta.Text
			a.reasoning += data.Delta.Thinking
			a.arguments += data.Delta.Partial
		case "content_block_stop":
			open = -1
		case "message_delta":
			a.finish = data.Delta.Finish
			a.in, a.out = data.Usage.In, data.Usage.Out
		case "message_stop":
			a.ended = true
		case "error":
			a.failure = data.Error.Message
		}
	}
	return a
}

func readWholeAnthropic(t *testing.T, body string) answer {
	t.Helper()
	var whole struct {
		Content []anthropicBlock `json:"content"`
		Finish  string           `json:"stop_reason"`
		Usage   anthropicUsage   `json:"usage"`
	}
	decode(t, body, &whole)
	a := answer{finish: whole.Finish, in: whole.Usage.In, out: whole.Usage.Out, ended: true}
	for _, block := range whole.Content {
		a.text += block.Text
		a.reasoning += block.Thinking
		a.tool += block.Name
		a.arguments += string(block.Input)
	}
	return a
}

// readOllama reads the lines of a stream, and a whole answer, which is one line
// that has everything.
func readOllama(t *testing.T, body string) answer {
	t.Helper()
	a := answer{in: -1, out: -1}
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		if line == "" {
			continue
		}
		var data struct {
			Message struct {
				Content, Thinking string
				ToolCalls         []struct {
					Function struct {
						Name      string
						Arguments json.RawMessage
					}
				} `json:"tool_calls"`
			}
			Response, Thinking string
			Done               bool
			DoneReason         string `json:"done_reason"`
			In                 int    `json:"prompt_eval_count"`
			Out                int    `json:"eval_count"`
			Error              string
		}
		decode(t, line, &data)
		a.text += data.Message.Content + data.Response
		a.reasoning += data.Message.Thinking + data.Thinking
		for _, call := range data.Message.ToolCalls {
			a.tool += call.Function.Name
			a.arguments += string(call.Function.Arguments)
		}
		a.failure += data.Error
		if data.Done {
			a.finish, a.in, a.out, a.ended = data.DoneReason, data.In, data.Out, true
		}
	}
	return a
}
