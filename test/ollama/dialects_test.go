//go:build ollama

package ollama_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// reading is what a client of a dialect has read.
type reading struct {
	text, reasoning string
	calls           []string // a name, a space and arguments each
	finish          string   // in the words of the dialect
	usage           usage
	ended           bool // in good order
}

// dialects are the values of emit for which there is a reader here, how their
// clients read them, and their words for a finish.
var dialects = map[string]struct {
	contentType string
	read        func(t *testing.T, body string) reading
	words       map[string]string
	// onlyText says that it carries nothing else.
	onlyText bool
	// usage says whether the response of an endpoint carries its usage.
	usage func(e endpoint) bool
}{
	"plain": {contentType: "text/plain", read: readPlain, onlyText: true},
	"openai": {
		contentType: "text/event-stream", read: readOpenAI,
		usage: func(e endpoint) bool { return e.fields(question{})["stream_options"] != nil },
	},
	"anthropic": {
		contentType: "text/event-stream", read: readAnthropic,
		words: map[string]string{"stop": "end_turn", "tool_calls": "tool_use"},
		usage: func(endpoint) bool { return true },
	},
	"ai-sdk": {
		contentType: "text/event-stream", read: readAISDK,
		words: map[string]string{"tool_calls": "tool-calls"},
		usage: func(endpoint) bool { return false },
	},
}

// Whatever API the client asks, it gets the dialect of the site.
func TestDialects(t *testing.T) {
	for name, dialect := range dialects {
		c := serve(t, "emit "+name)
		for _, e := range endpoints {
			if name == "openai" && leftAlone(e) {
				continue
			}
			for topic := range topics {
				q, want, able := e.about(topic)
				if !able {
					continue
				}
				t.Run(name+" "+e.path+" "+topic, func(t *testing.T) {
					resp := ask(t, c.Addr, e, q)
					body := whole(t, resp)
					if !strings.HasPrefix(resp.Header.Get("Content-Type"), dialect.contentType) {
						t.Errorf("content type is %q", resp.Header.Get("Content-Type"))
					}
					got := dialect.read(t, body)
					equal(t, "ended", got.ended, true)
					equal(t, "text", got.text, want.text)
					if dialect.onlyText {
						return
					}
					equal(t, "reasoning", got.reasoning, want.reasoning)
					checkCalls(t, got.calls, want.call)
					if word := dialect.words[want.finish]; word != "" {
						want.finish = word
					}
					equal(t, "finish", got.finish, want.finish)
					if dialect.usage(e) {
						equal(t, "usage", got.usage, e.usage(t, q))
					}
				})
			}
		}
	}
}

// leftAlone reports whether emit openai passes an endpoint's streams as they
// are, because the SDK calls behind it expect their own format.
func leftAlone(e endpoint) bool {
	return e.path == "/v1/completions" || e.path == "/v1/responses"
}

// volatile is what is another in each response.
var volatile = regexp.MustCompile(`"(id|item_id|call_id|request_id|created|created_at|completed_at|total_duration|load_duration|prompt_eval_duration|eval_duration)":("[^"]*"|\d+)`)

// What passes through has the bytes of the server.
func TestPassthrough(t *testing.T) {
	for _, emit := range []string{"passthrough", "openai"} {
		c := serve(t, "emit "+emit)
		for _, e := range endpoints {
			if emit == "openai" && !leftAlone(e) {
				continue
			}
			for topic := range topics {
				q, _, able := e.about(topic)
				if !able {
					continue
				}
				t.Run(emit+" "+e.path+" "+topic, func(t *testing.T) {
					through, direct := ask(t, c.Addr, e, q), ask(t, ollama.addr, e, q)
					equal(t, "content type", through.Header.Get("Content-Type"), direct.Header.Get("Content-Type"))
					got := volatile.ReplaceAllString(whole(t, through), `"$1":0`)
					equal(t, "body", got, volatile.ReplaceAllString(whole(t, direct), `"$1":0`))
				})
			}
		}
	}
}

// whole reads a body that ends in good order.
func whole(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("the body ends with %v after %q", err, b)
	}
	return string(b)
}

func readPlain(_ *testing.T, body string) reading {
	return reading{text: body, ended: true}
}

// events returns the data of each event, and whether [DONE] is the last.
func events(t *testing.T, body string) (list []gjson.Result, done bool) {
	t.Helper()
	fr := rig.NewFrameReader(strings.NewReader(body))
	for {
		f, err := fr.Next()
		if err == io.EOF { //nolint:errorlint // the reader returns it as it is
			return list, done
		}
		if err != nil || done {
			t.Fatalf("%+v: %v", f, err)
		}
		if f.Data == "[DONE]" {
			done = true
			continue
		}
		if !gjson.Valid(f.Data) {
			t.Fatalf("no JSON: %q", f.Data)
		}
		list = append(list, gjson.Parse(f.Data))
	}
}

func readOpenAI(t *testing.T, body string) (r reading) {
	t.Helper()
	list, done := events(t, body)
	var name, arguments string
	for _, ev := range list {
		delta := ev.Get("choices.0.delta")
		r.text += delta.Get("content").String()
		r.reasoning += delta.Get("reasoning_content").String()
		name += delta.Get("tool_calls.0.function.name").String()
		arguments += delta.Get("tool_calls.0.function.arguments").String()
		r.finish += ev.Get("choices.0.finish_reason").String()
		if u := ev.Get("usage"); u.IsObject() {
			r.usage = usage{u.Get("prompt_tokens").Int(), u.Get("completion_tokens").Int()}
		}
	}
	if name != "" {
		r.calls = []string{name + " " + arguments}
	}
	r.ended = done
	return r
}

func readAnthropic(t *testing.T, body string) (r reading) {
	t.Helper()
	list, _ := events(t, body)
	for _, ev := range list {
		equal(t, "an event after the end", r.ended, false)
		switch ev.Get("type").String() {
		case "content_block_start":
			if block := ev.Get("content_block"); block.Get("type").String() == "tool_use" {
				r.calls = append(r.calls, block.Get("name").String()+" ")
			}
		case "content_block_delta":
			r.text += ev.Get("delta.text").String()
			r.reasoning += ev.Get("delta.thinking").String()
			if part := ev.Get("delta.partial_json"); part.Exists() {
				r.calls[len(r.calls)-1] += part.String()
			}
		case "message_delta":
			r.finish = ev.Get("delta.stop_reason").String()
			r.usage = usage{ev.Get("usage.input_tokens").Int(), ev.Get("usage.output_tokens").Int()}
		case "message_stop":
			r.ended = true
		}
	}
	return r
}

func readAISDK(t *testing.T, body string) (r reading) {
	t.Helper()
	list, done := events(t, body)
	for _, ev := range list {
		switch ev.Get("type").String() {
		case "text-delta":
			r.text += ev.Get("delta").String()
		case "reasoning-delta":
			r.reasoning += ev.Get("delta").String()
		case "tool-input-available":
			r.calls = append(r.calls, ev.Get("toolName").String()+" "+ev.Get("input").Raw)
		case "finish":
			r.finish = ev.Get("finishReason").String()
		}
	}
	r.ended = done
	return r
}
