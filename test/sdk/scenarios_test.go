package sdk_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// scenario is one way in which a response can come.
type scenario struct {
	name    string
	columns []string // of the table
	options llmsim.Options
	first   *llmsim.Options // of the first request, where it differs

	tools     bool
	maxTokens int
	retries   int

	cut    bool // the connection to the client is cut
	beat   bool // heartbeats come between the tokens
	status int  // how the request is answered where it is refused
	reads  bool // it needs the stream to be decoded, not passed through
	fails  bool // in the middle, after partial tokens
	why    string
}

const (
	tokens  = 60 // of a whole answer
	partial = 8  // of one that breaks off
	pause   = 130 * time.Millisecond
)

// failure is a part of the message of llmsim's errors.
const failure = "the simulated model failed"

var scenarios = []scenario{
	{name: "text", columns: []string{"text", "usage"}, options: llmsim.Options{Tokens: tokens}},
	{name: "length", columns: []string{"text", "usage"}, options: llmsim.Options{Tokens: tokens}, maxTokens: partial},
	{name: "reasoning", columns: []string{"reasoning"}, options: llmsim.Options{Tokens: 10, Reasoning: 15}},
	{name: "tools", columns: []string{"tools"}, tools: true},
	{
		name: "heartbeat", columns: []string{"heartbeat"}, beat: true,
		options: llmsim.Options{Tokens: 5, TTFT: pause, Interval: pause},
	},
	{
		name: "error", columns: []string{"error"}, fails: true, why: failure,
		options: llmsim.Options{Tokens: tokens, Fault: llmsim.FaultError, FaultAt: partial},
	},
	{
		name: "error and done", columns: []string{"error"}, fails: true, why: failure, reads: true,
		options: llmsim.Options{Tokens: tokens, Fault: llmsim.FaultErrorDone, FaultAt: partial},
	},
	{
		name: "backend dies", columns: []string{"cut"}, fails: true,
		options: llmsim.Options{Tokens: tokens, Fault: llmsim.FaultDie, FaultAt: partial},
	},
	{
		name: "backend ends early", columns: []string{"cut"}, fails: true,
		options: llmsim.Options{Tokens: tokens, Fault: llmsim.FaultEnd, FaultAt: partial},
	},
	{name: "client is cut off", columns: []string{"cut"}, cut: true, options: llmsim.Options{Tokens: tokens}},
	{
		name: "refused with 429", columns: []string{"error"}, status: http.StatusTooManyRequests,
		options: llmsim.Options{Fault: llmsim.FaultStatus, Status: http.StatusTooManyRequests},
	},
	{
		name: "refused with 529", columns: []string{"error"}, status: 529,
		options: llmsim.Options{Fault: llmsim.FaultStatus, Status: 529},
	},
	{
		// 529 of Anthropic's overloaded_error, 500 of OpenAI's server_error
		name: "error before the first token", columns: []string{"error"}, status: 500, reads: true,
		options: llmsim.Options{Tokens: tokens, Fault: llmsim.FaultError},
	},
	{
		name: "429, then an answer", columns: []string{"retry"}, retries: 2, options: llmsim.Options{Tokens: tokens},
		first: &llmsim.Options{Fault: llmsim.FaultStatus, Status: http.StatusTooManyRequests},
	},
	{
		name: "error event first, then an answer", columns: []string{"retry"}, retries: 2, reads: true,
		options: llmsim.Options{Tokens: tokens}, first: &llmsim.Options{Tokens: tokens, Fault: llmsim.FaultError},
	},
}

// handler is the backend of a scenario in a provider's format.
func (s *scenario) handler(format string) http.Handler {
	if s.first == nil {
		return simulated(format, s.options)
	}
	return afterFirst(simulated(format, *s.first), simulated(format, s.options))
}

// check compares what the SDK made of a scenario with what llmsim has sent.
func (s *scenario) check(t *testing.T, c *client, got *outcome, calls int64) {
	t.Helper()
	switch {
	case s.cut:
		checkFailed(t, got)
	case s.fails:
		checkFailed(t, got)
		equal(t, "text", got.Text, llmsim.Text(partial))
		c.checkStreamError(t, s, got.Error)
	case s.status != 0:
		checkFailed(t, got)
		c.checkRefusal(t, s, got.Error)
	default:
		s.checkWhole(t, c, got)
	}
	if want := int64(1); s.first == nil {
		equal(t, "requests", calls, want)
	} else {
		equal(t, "requests", calls, want+1)
	}
}

func (s *scenario) checkWhole(t *testing.T, c *client, got *outcome) {
	t.Helper()
	if got.Error != nil || !got.Ended {
		t.Fatalf("ended %v, error %+v", got.Ended, got.Error)
	}
	output, finish := s.options.Tokens, c.stop
	text := llmsim.Text(output)
	switch {
	case s.tools:
		text, output, finish = "", c.toolTokens(), c.toolCalls
		checkTool(t, got.Tools)
	case s.maxTokens > 0:
		text, output, finish = llmsim.Text(s.maxTokens), s.maxTokens, c.length
	}
	equal(t, "text", got.Text, text)
	equal(t, "finish", got.Finish, finish)
	if c.noReasoning == "" {
		equal(t, "reasoning", got.Reasoning, llmsim.ReasoningText(s.options.Reasoning))
	}
	if c.noUsage != "" {
		return
	}
	if got.Usage == nil {
		t.Fatal("no usage")
	}
	equal(t, "output tokens", got.Usage.Output, int64(output+s.options.Reasoning))
	if got.Usage.Input <= 0 {
		t.Errorf("%d input tokens", got.Usage.Input)
	}
}

func checkTool(t *testing.T, calls []toolCall) {
	t.Helper()
	if len(calls) != 1 {
		t.Fatalf("%d calls: %+v", len(calls), calls)
	}
	equal(t, "tool", calls[0].Name, "get_weather")
	equal(t, "arguments", canonical(calls[0].Arguments), canonical(llmsim.ToolArguments))
}

// checkFailed is for what must never look like a whole response.
func checkFailed(t *testing.T, got *outcome) {
	t.Helper()
	if got.Ended {
		t.Error("the SDK takes it for a whole response")
	}
	if got.Error == nil {
		t.Fatal("the SDK has reported no error")
	}
	if whole := llmsim.Text(tokens); got.Text == whole || !strings.HasPrefix(whole, got.Text) {
		t.Errorf("text is %q", got.Text)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%v\nnot\n%v", what, got, want)
	}
}

// canonical makes equal JSON equal text; what is no JSON stays as it is.
func canonical(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(out)
}
