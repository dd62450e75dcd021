//go:build ollama

package ollama_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// everything lets the text dialect carry all that there is.
const everything = "include reasoning tool_calls"

// answer is what a question is answered with.
type answer struct {
	text, reasoning string
	call            bool // tinymodel's
	finish          string
}

// topics are questions and what the model says to them.
var topics = map[string]struct {
	question question
	answer   answer
}{
	"text":    {question{model: tiny, prompt: "Grüezi"}, answer{text: tinymodel.Answer(), finish: "stop"}},
	"thought": {question{model: tiny, prompt: tinymodel.AskThought}, answer{text: tinymodel.Conclusion, reasoning: tinymodel.Thought, finish: "stop"}},
	"call":    {question{model: tiny, prompt: "weather?", tools: true}, answer{call: true, finish: "tool_calls"}},
	"thought, call": {
		question{model: tiny, prompt: tinymodel.AskThought, tools: true},
		answer{reasoning: tinymodel.Thought, call: true, finish: "tool_calls"},
	},
}

// about returns the question of a topic and what an endpoint answers, or false
// where that endpoint has no way of doing so.
func (e endpoint) about(topic string) (question, answer, bool) {
	tp := topics[topic]
	if !e.thinks {
		tp.answer.reasoning = ""
	}
	return tp.question, tp.answer, e.takesTools || !tp.question.tools
}

// usage is how many tokens were read and generated.
type usage struct{ input, output int64 }

// counted has what usage was told, for it is the same each time.
var counted = make(map[string]usage)

// usage returns how many tokens Ollama counts when it answers in one piece.
func (e endpoint) usage(t *testing.T, q question) usage {
	t.Helper()
	body := e.body(q, false)
	if u, ok := counted[e.path+body]; ok {
		return u
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := ollama.post(ctx, e.path, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	u := usage{gjson.GetBytes(got, e.input).Int(), gjson.GetBytes(got, e.output).Int()}
	if u.input == 0 || u.output == 0 {
		t.Fatalf("%s: no usage in %s", e.path, got)
	}
	counted[e.path+body] = u
	return u
}

// All that the server says comes through, to the byte, and nothing else.
func TestAnswers(t *testing.T) {
	c := serve(t, everything)
	for _, e := range endpoints {
		for topic := range topics {
			q, want, able := e.about(topic)
			if !able {
				continue
			}
			t.Run(e.path+" "+topic, func(t *testing.T) {
				got := rig.ReadAnswer(t, ask(t, c.Addr, e, q).Body)
				checkAnswer(t, got, want)
				checkUsage(t, got, e.usage(t, q))
			})
		}
	}
}

func checkAnswer(t *testing.T, got *rig.Answer, want answer) {
	t.Helper()
	if got.Cut != nil || got.Error != nil || got.Done == nil {
		t.Fatalf("it ends with %v, %+v", got.Cut, got.Error)
	}
	equal(t, "text", fmt.Sprintf("%q", got.Text), fmt.Sprintf("%q", want.text))
	equal(t, "reasoning", got.Reasoning, want.reasoning)
	equal(t, "finish", got.Done.FinishReason, want.finish)
	var calls []string
	for _, call := range got.ToolCalls {
		calls = append(calls, call.Name+" "+call.Arguments)
	}
	checkCalls(t, calls, want.call)
}

// checkCalls checks tool calls, each a name, a space and arguments.
func checkCalls(t *testing.T, got []string, want bool) {
	t.Helper()
	if !want {
		equal(t, "number of calls", len(got), 0)
		return
	}
	if len(got) != 1 {
		t.Fatalf("the calls are %q", got)
	}
	name, arguments, _ := strings.Cut(got[0], " ")
	equal(t, "tool", name, tinymodel.ToolName)
	var g, w any
	if err := json.Unmarshal([]byte(arguments), &g); err != nil {
		t.Fatalf("arguments %s: %v", arguments, err)
	}
	_ = json.Unmarshal([]byte(tinymodel.ToolArguments), &w) // a constant
	if !reflect.DeepEqual(g, w) {
		t.Errorf("arguments are %s", arguments)
	}
}

func checkUsage(t *testing.T, got *rig.Answer, want usage) {
	t.Helper()
	u := got.Done.Usage
	if u == nil || u.InputTokens == nil || u.OutputTokens == nil {
		t.Fatal("no usage")
	}
	equal(t, "usage", usage{*u.InputTokens, *u.OutputTokens}, want)
}

// At the token limit the text ends early, and the finish says so where the API
// can.
func TestTokenLimit(t *testing.T) {
	const limit = 40
	c := serve(t, everything)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			q := question{model: tiny, prompt: "Grüezi", limit: limit}
			got := rig.ReadAnswer(t, ask(t, c.Addr, e, q).Body)
			if got.Done == nil {
				t.Fatalf("it ends with %v, %+v", got.Cut, got.Error)
			}
			equal(t, "finish", got.Done.FinishReason, e.limited)
			if n := len(got.Text); n < limit || n > 4*limit || !strings.HasPrefix(tinymodel.Answer(), got.Text) {
				t.Errorf("text is %q", got.Text)
			}
			counted := e.usage(t, q)
			equal(t, "what the server counts", counted.output, limit)
			checkUsage(t, got, counted)
		})
	}
}
