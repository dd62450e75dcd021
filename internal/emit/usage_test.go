package emit_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// The parts of the counts are in the frame and in every dialect's own members;
// what the provider did not send is left out.
func TestTokenCountsOfEveryDialect(t *testing.T) {
	t.Parallel()
	full := &event.TokenUsage{Input: 9104, Output: 34, CachedInput: 9000, CacheWrite: 100, Reasoning: 12}
	for name, tt := range map[string]struct {
		dialect string
		usage   *event.TokenUsage
		want    string
	}{
		"text":           {emit.DialectText, full, `"usage":{"input_tokens":9104,"output_tokens":34,"cached_input_tokens":9000,"cache_write_tokens":100,"reasoning_tokens":12}`},
		"openai":         {emit.DialectOpenAI, full, `"usage":{"prompt_tokens":9104,"completion_tokens":34,"total_tokens":9138,"prompt_tokens_details":{"cached_tokens":9000},"completion_tokens_details":{"reasoning_tokens":12}}`},
		"anthropic":      {emit.DialectAnthropic, full, `"usage":{"input_tokens":4,"cache_creation_input_tokens":100,"cache_read_input_tokens":9000,"output_tokens":34}`},
		"text, two":      {emit.DialectText, &event.TokenUsage{Input: 1, Output: 0}, `"usage":{"input_tokens":1,"output_tokens":0}`},
		"text, one":      {emit.DialectText, &event.TokenUsage{Input: -1, Output: 2}, `"usage":{"output_tokens":2}`},
		"anthropic, one": {emit.DialectAnthropic, &event.TokenUsage{Input: -1, Output: 2}, `"usage":{"output_tokens":2}`},
	} {
		enc, err := emit.New(tt.dialect, emit.Options{ResponseID: responseID, IncludeUsage: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := encode(enc, text("x"), done(event.Result{Usage: tt.usage})); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got\n%s\nwithout %s", name, got, tt.want)
		}
	}
}

func TestAnthropicBeginsWithTheInputThatIsKnown(t *testing.T) {
	t.Parallel()
	enc := emit.NewAnthropic(responseID, "m")
	enc.SetUsage(&event.TokenUsage{Input: 9104, Output: 1, CachedInput: 9000, CacheWrite: 100})
	want := `"usage":{"input_tokens":4,"cache_creation_input_tokens":100,"cache_read_input_tokens":9000,"output_tokens":0}}}`
	if got := encode(enc, text("x")); !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}

// Clients of OpenAI's decide by the type of an error whether to try again.
func TestOpenAIErrorsHaveItsWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  event.Error
		want string
	}{
		{event.Error{Code: event.CodeUpstreamTruncated, Status: 502}, "server_error"},
		{event.Error{Code: event.CodeFirstTokenTimeout, Status: 504}, "server_error"},
		{event.Error{Code: event.CodeDraining, Status: 503}, "server_error"},
		{event.Error{Code: event.CodeQueueFull, Status: 429}, "rate_limit_error"},
		{event.Error{Code: event.CodeBadCursor, Status: 400}, "invalid_request_error"},
		{event.Error{Code: event.CodeUpstreamError, Status: 500, Upstream: []byte(`{"type":"EngineFault"}`)}, "EngineFault"},
		{event.Error{Code: event.CodeUpstreamError, Status: 529, Upstream: []byte(`{"type":""}`)}, "server_error"},
		{event.Error{Code: event.CodeUpstreamError, Status: 502, Upstream: []byte(`{"type":5}`)}, "server_error"},
	} {
		got := string(emit.AppendErrorBody(nil, emit.DialectOpenAI, &tt.err, ""))
		if !strings.Contains(got, `"error":{"type":"`+tt.want+`"`) {
			t.Errorf("%v: %s", tt.err.Error(), got)
		}
		other := string(emit.AppendErrorBody(nil, emit.DialectText, &tt.err, ""))
		if !strings.Contains(other, `"error":{"type":"`+event.ErrorType(tt.err.Status)+`"`) {
			t.Errorf("%v: %s", tt.err.Error(), other)
		}
	}
}
