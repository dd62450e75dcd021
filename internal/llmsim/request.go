package llmsim

import (
	"encoding/json"
	"fmt"
	"slices"
)

// maxChoices bounds the choices of one response.
const maxChoices = 8

// defaultModel is the model of a request that names none.
const defaultModel = "sim-1"

// request holds what the simulator heeds of a request's body, in all dialects:
// their names do not collide.
type request struct {
	Model         string `json:"model"`
	Stream        *bool  `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N                   *int            `json:"n"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MaxOutputTokens     *int            `json:"max_output_tokens"` // OpenAI's responses
	Options             requestOptions  `json:"options"`           // Ollama
	Tools               []toolReference `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Messages            []message       `json:"messages"`
	Input               json.RawMessage `json:"input"` // OpenAI's responses
}

type requestOptions struct {
	NumPredict *int `json:"num_predict"` // negative: no limit
}

// toolReference names a tool as OpenAI and Ollama do (function.name), or as
// Anthropic and OpenAI's responses do (name). The rest is what a response of the
// latter repeats.
type toolReference struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Description json.RawMessage `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      json.RawMessage `json:"strict"`
}

func (t toolReference) name() string {
	if t.Function.Name != "" {
		return t.Function.Name
	}
	return t.Name
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// parseRequest reads a body and checks the values that it heeds. An empty body,
// which a GET has, is a request without wishes.
func parseRequest(body []byte) (request, error) {
	var req request
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			return req, fmt.Errorf("llmsim: the body is no request: %w", err)
		}
	}
	if req.Model == "" {
		req.Model = defaultModel
	}
	if req.N != nil && (*req.N < 1 || *req.N > maxChoices) {
		return req, fmt.Errorf("%w: n is %d, want 1 to %d", ErrInvalid, *req.N, maxChoices)
	}
	if limit := req.MaxCompletionTokens; limit != nil && *limit < 1 {
		return req, fmt.Errorf("%w: max_completion_tokens is %d, want 1 or more", ErrInvalid, *limit)
	}
	if limit := req.MaxTokens; limit != nil && *limit < 1 {
		return req, fmt.Errorf("%w: max_tokens is %d, want 1 or more", ErrInvalid, *limit)
	}
	if limit := req.MaxOutputTokens; limit != nil && *limit < 1 {
		return req, fmt.Errorf("%w: max_output_tokens is %d, want 1 or more", ErrInvalid, *limit)
	}
	return req, nil
}

// limit returns how many tokens the client wants at most.
func (r *request) limit() int {
	limit := 2 * MaxTokens
	for _, l := range []*int{r.MaxTokens, r.MaxCompletionTokens, r.MaxOutputTokens, r.Options.NumPredict} {
		if l != nil && *l >= 0 {
			limit = min(limit, *l)
		}
	}
	return limit
}

// tool returns the name of the tool that the answer calls, empty where it is
// text: without tools, with tool_choice none, and after a tool's result, so that
// an agent that hands in results comes to an end.
func (r *request) tool() string {
	if len(r.Tools) == 0 || r.afterToolResult() {
		return ""
	}
	if len(r.ToolChoice) > 0 {
		if string(r.ToolChoice) == `"none"` {
			return ""
		}
		var choice toolReference
		// Its other string forms, auto and required, name no tool.
		if json.Unmarshal(r.ToolChoice, &choice) == nil {
			if choice.Type == "none" {
				return ""
			}
			if name := choice.name(); name != "" {
				return name
			}
		}
	}
	return r.Tools[0].name()
}

// afterToolResult reports whether the last message is what a tool returned.
func (r *request) afterToolResult() bool {
	if items := parseBlocks(r.Input); len(items) > 0 {
		return items[len(items)-1].Type == "function_call_output"
	}
	if len(r.Messages) == 0 {
		return false
	}
	last := r.Messages[len(r.Messages)-1]
	isResult := func(b block) bool { return b.Type == "tool_result" }
	return last.Role == "tool" || slices.ContainsFunc(parseBlocks(last.Content), isResult)
}

// block is a part of a message's content, or of the input of OpenAI's responses.
type block struct {
	Type string `json:"type"`
}

// parseBlocks returns no block of what is plain text.
func parseBlocks(content json.RawMessage) []block {
	var blocks []block
	if json.Unmarshal(content, &blocks) != nil {
		return nil
	}
	return blocks
}
