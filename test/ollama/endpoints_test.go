//go:build ollama

package ollama_test

import (
	"encoding/json"

	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// question is what a test asks of the model.
type question struct {
	model  string
	prompt string
	tools  bool
	limit  int // tokens, at most; 0 for as many as it has to say
}

// endpoint is one of the APIs in which Ollama streams.
type endpoint struct {
	path string
	// fields are those of the request that ask a question.
	fields func(q question) map[string]any
	// always says that it streams unless it is asked not to.
	always bool
	// takesTools says that it can be offered tools.
	takesTools bool
	// thinks says that its responses carry what the model thinks.
	thinks bool
	// limited is the finish reason at the token limit.
	limited string
	// input and output are where a whole answer has its usage.
	input, output string
}

// unlimited is a token limit for APIs that must have one.
const unlimited = 100_000

// parameters is the JSON schema of the one tool.
var parameters = map[string]any{
	"type":       "object",
	"properties": map[string]any{"city": map[string]any{"type": "string"}},
	"required":   []string{"city"},
}

var endpoints = []endpoint{
	{
		path: "/api/chat", fields: chatFields, always: true, takesTools: true, thinks: true, limited: "length",
		input: "prompt_eval_count", output: "eval_count",
	},
	{
		path: "/api/generate", fields: generateFields, always: true, thinks: true, limited: "length",
		input: "prompt_eval_count", output: "eval_count",
	},
	{
		path: "/v1/chat/completions", fields: openAIChatFields, takesTools: true, thinks: true, limited: "length",
		input: "usage.prompt_tokens", output: "usage.completion_tokens",
	},
	{
		path: "/v1/completions", fields: completionsFields, limited: "length",
		input: "usage.prompt_tokens", output: "usage.completion_tokens",
	},
	{
		path: "/v1/messages", fields: messagesFields, takesTools: true, thinks: true, limited: "length",
		input: "usage.input_tokens", output: "usage.output_tokens",
	},
	{
		path: "/v1/responses", fields: responsesFields, takesTools: true, thinks: true,
		limited: "stop", // response.completed it says all the same
		input:   "usage.input_tokens", output: "usage.output_tokens",
	},
}

// body returns the JSON of a request.
func (e endpoint) body(q question, stream bool) string {
	fields := e.fields(q)
	fields["model"] = q.model
	if !stream || !e.always {
		fields["stream"] = stream
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func messages(q question) []map[string]string {
	return []map[string]string{{"role": "user", "content": q.prompt}}
}

// function is the tool as OpenAI and Ollama describe one.
func function() map[string]any {
	return map[string]any{"name": tinymodel.ToolName, "parameters": parameters}
}

func chatFields(q question) map[string]any {
	f := map[string]any{"messages": messages(q)}
	if q.tools {
		f["tools"] = []any{map[string]any{"type": "function", "function": function()}}
	}
	if q.limit > 0 {
		f["options"] = map[string]any{"num_predict": q.limit}
	}
	return f
}

func generateFields(q question) map[string]any {
	f := map[string]any{"prompt": q.prompt}
	if q.limit > 0 {
		f["options"] = map[string]any{"num_predict": q.limit}
	}
	return f
}

func openAIChatFields(q question) map[string]any {
	f := map[string]any{"messages": messages(q), "stream_options": map[string]any{"include_usage": true}}
	if q.tools {
		f["tools"] = []any{map[string]any{"type": "function", "function": function()}}
	}
	if q.limit > 0 {
		f["max_tokens"] = q.limit
	}
	return f
}

func completionsFields(q question) map[string]any {
	f := map[string]any{"prompt": q.prompt, "stream_options": map[string]any{"include_usage": true}}
	if q.limit > 0 {
		f["max_tokens"] = q.limit
	}
	return f
}

func messagesFields(q question) map[string]any {
	f := map[string]any{"messages": messages(q), "max_tokens": unlimited}
	if q.tools {
		f["tools"] = []any{map[string]any{"name": tinymodel.ToolName, "input_schema": parameters}}
	}
	if q.limit > 0 {
		f["max_tokens"] = q.limit
	}
	return f
}

func responsesFields(q question) map[string]any {
	f := map[string]any{"input": q.prompt}
	if q.tools {
		tool := function()
		tool["type"] = "function"
		f["tools"] = []any{tool}
	}
	if q.limit > 0 {
		f["max_output_tokens"] = q.limit
	}
	return f
}
