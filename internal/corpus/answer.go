package corpus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Answer is what a client has of a response, or must have. What is not named
// is empty; the text "*" is any.
type Answer struct {
	Text           Content            `json:"text"`
	Reasoning      Content            `json:"reasoning"`
	Refusal        Content            `json:"refusal"`
	ToolCalls      []AnswerCall       `json:"tool_calls"`
	Choices        map[string]Content `json:"choices"`
	Terminal       string             `json:"terminal"` // done or error
	FinishReason   string             `json:"finish_reason"`
	ProviderFinish string             `json:"provider_finish_reason"`
	Usage          json.RawMessage    `json:"usage"`
	Code           string             `json:"code"`
	Status         int                `json:"status"`
	Upstream       map[string]any     `json:"upstream"`
	UpstreamSays   string             `json:"upstream_says"`
	BeforeMS       int                `json:"before_ms"`
	Raw            bool               `json:"raw"`
	Pings          *bool              `json:"pings"`
	Headers        map[string]string  `json:"headers"`
	WholeChunks    bool               `json:"whole_chunks"`
	OneID          bool               `json:"one_id"`
	StartUsage     json.RawMessage    `json:"start_usage"`
}

// AnswerCall is one whole tool call.
type AnswerCall struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Arguments Content `json:"arguments"`
}

// Diff returns how an answer of a dialect differs from the one wanted, empty
// where it does not.
func Diff(got, want Answer, dialect string) string {
	var d differ
	d.text("text", got.Text, want.Text)
	if dialect != "plain" {
		d.calls(got.ToolCalls, want.ToolCalls)
		if dialect != "anthropic" && dialect != "ai-sdk" { // there it is text
			d.text("refusal", got.Refusal, want.Refusal)
		}
		d.text("reasoning", got.Reasoning, want.Reasoning)
	}
	d.value("terminal", got.Terminal, want.Terminal)
	if want.Terminal == "error" {
		d.failure(got, want, dialect)
		return d.String()
	}
	switch dialect {
	case "text":
		d.value("finish_reason", got.FinishReason, want.FinishReason)
		provider := want.ProviderFinish
		if provider == want.FinishReason {
			provider = ""
		}
		d.value("provider_finish_reason", got.ProviderFinish, provider)
		d.usage("usage", got.Usage, want.Usage)
		for choice, text := range want.Choices {
			d.text("choice "+choice, got.Choices[choice], text)
		}
	case "openai", "anthropic":
		d.value("finish_reason", got.FinishReason, inDialect(dialect, want))
		d.usage("usage", got.Usage, usageInDialect(dialect, want.Usage))
		d.usage("start_usage", got.StartUsage, want.StartUsage)
	}
	d.value("whole chunks", got.WholeChunks || !want.WholeChunks, true)
	d.value("one id", got.OneID || !want.OneID, true)
	return d.String()
}

// inDialect returns the word of a dialect for the finish that is wanted.
func inDialect(dialect string, want Answer) string {
	if dialect == "openai" {
		switch want.FinishReason {
		case "length", "tool_calls", "content_filter":
			return want.FinishReason
		}
		return "stop"
	}
	switch want.ProviderFinish {
	case "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal":
		return want.ProviderFinish
	}
	switch want.FinishReason {
	case "length":
		return "max_tokens"
	case "tool_calls":
		return "tool_use"
	case "content_filter":
		return "refusal"
	}
	return "end_turn"
}

// usageInDialect returns the counts that are wanted under the names of a
// dialect.
func usageInDialect(dialect string, usage json.RawMessage) json.RawMessage {
	var n map[string]int64
	if json.Unmarshal(usage, &n) != nil || n == nil {
		return usage
	}
	out := map[string]any{}
	if dialect == "openai" {
		rename := map[string]string{"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
		for name, count := range n {
			if to := rename[name]; to != "" {
				out[to] = count
			}
		}
		if n["cached_input_tokens"] > 0 {
			out["prompt_tokens_details"] = map[string]any{"cached_tokens": n["cached_input_tokens"]}
		}
		if n["reasoning_tokens"] > 0 {
			out["completion_tokens_details"] = map[string]any{"reasoning_tokens": n["reasoning_tokens"]}
		}
	} else {
		out["output_tokens"] = n["output_tokens"]
		out["input_tokens"] = n["input_tokens"] - n["cached_input_tokens"] - n["cache_write_tokens"]
		if n["cached_input_tokens"] > 0 {
			out["cache_read_input_tokens"] = n["cached_input_tokens"]
		}
		if n["cache_write_tokens"] > 0 {
			out["cache_creation_input_tokens"] = n["cache_write_tokens"]
		}
	}
	raw, _ := json.Marshal(out)
	return raw
}

// differ collects differences.
type differ struct{ list []string }

func (d *differ) String() string { return strings.Join(d.list, "; ") }

func (d *differ) add(format string, args ...any) {
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

func (d *differ) text(what string, got, want Content) {
	if want != "*" && got != want {
		d.add("%s is %.120q, want %.120q", what, got, want)
	}
}

func (d *differ) value(what string, got, want any) {
	if got != want {
		d.add("%s is %v, want %v", what, got, want)
	}
}

func (d *differ) calls(got, want []AnswerCall) {
	if len(got) != len(want) {
		d.add("tool calls are %.300v, want %.300v", got, want)
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.Name != w.Name || w.ID != "" && g.ID != w.ID || w.Arguments != "*" && sameJSON(string(g.Arguments)) != sameJSON(string(w.Arguments)) {
			d.add("tool call %d is %.300v, want %.300v", i, g, w)
		}
	}
}

// sameJSON makes equal JSON equal text; what is no JSON stays as it is.
func sameJSON(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	out, err := json.Marshal(v)
	if err != nil {
		return s
	}
	return string(out)
}

// usage compares counts: those that are named must be there, and none where
// none is named.
func (d *differ) usage(what string, got, want json.RawMessage) {
	var g, w map[string]any
	switch {
	case string(want) == `"*"`:
	case len(want) == 0 || string(want) == "null":
		if len(got) > 0 && string(got) != "null" && what != "start_usage" {
			d.add("%s is %s, want none", what, got)
		}
	case json.Unmarshal(got, &g) != nil || json.Unmarshal(want, &w) != nil:
		d.add("%s is %s, want %s", what, got, want)
	default:
		for name, count := range w {
			if sameValue(g[name]) != sameValue(count) {
				d.add("%s is %s, want %s", what, got, want)
				return
			}
		}
	}
}

func sameValue(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// failure compares errors.
func (d *differ) failure(got, want Answer, dialect string) {
	if dialect == "plain" {
		return
	}
	if want.Code != "*" {
		d.value("code", got.Code, want.Code)
	}
	if dialect == "ai-sdk" {
		return // its errors are text
	}
	for name, value := range want.Upstream {
		if sameValue(got.Upstream[name]) != sameValue(value) {
			d.add("upstream is %v, want %v", got.Upstream, want.Upstream)
			return
		}
	}
	if says := sameValue(got.Upstream); !strings.Contains(says, want.UpstreamSays) {
		d.add("upstream is %s, which does not say %q", says, want.UpstreamSays)
	}
}

// CheckBytes returns what is wrong with the bytes of a re-emitted stream in any
// case: JSON output never holds a raw separator, and is valid UTF-8.
func CheckBytes(stream []byte) string {
	for _, separator := range []string{"\u2028", "\u2029", "\u0085"} {
		if bytes.Contains(stream, []byte(separator)) {
			return fmt.Sprintf("a raw %+q", separator)
		}
	}
	if !utf8.Valid(stream) {
		return "bytes that are not UTF-8"
	}
	return ""
}
