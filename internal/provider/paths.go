package provider

import (
	"net/http"
	"strings"
)

// llmPaths has the request paths of the streaming APIs and the format that
// each answers in. The first entry that a path ends with counts. Clients
// reach the same API under many prefixes, of gateways and of providers.
var llmPaths = []struct{ suffix, format string }{
	{"/chat/completions", "openai-chat"},
	{"/v1/completions", "openai-completions"},
	{"/completions", "openai-completions"}, // llama.cpp answers in its own format
	{"/completion", "llamacpp-completion"},
	{"/infill", "llamacpp-completion"},
	{"/responses", "openai-responses"},
	{"/v1/messages", "anthropic-messages"},
	{":streamRawPredict", "anthropic-messages"},
	{"/v1/complete", "anthropic-messages"},
	{":streamGenerateContent", "gemini"},
	{"/interactions", "gemini-interactions"},
	{"/api/chat", "ollama-chat"},
	{"/api/generate", "ollama-generate"},
	{"/v2/chat", "cohere-v2"},
	{"/v1/chat", "cohere-v1"}, // Writer answers in openai-chat
	{"/converse-stream", "bedrock-converse"},
	{"/invoke-with-response-stream", "bedrock-invoke"},
	{"/generate_stream", "tgi"},
	{"/text/generation_stream", "watsonx"},
	{"/generation/text_stream", "watsonx"},
	{"/text/chat_stream", "openai-chat"}, // watsonx, too
}

// formatOfPath returns the name of the format that the API with this request
// path answers in, empty where it is no LLM API that we know. It is a hint:
// what a backend sends outranks it.
func formatOfPath(path string) string {
	path = strings.TrimSuffix(path, "/")
	for _, p := range llmPaths {
		if strings.HasSuffix(path, p.suffix) {
			return p.format
		}
	}
	switch {
	case strings.Contains(path, "/responses/resp_"): // a stored response, read again
		return "openai-responses"
	case strings.Contains(path, "/threads/") &&
		(strings.HasSuffix(path, "/runs") || strings.HasSuffix(path, "/submit_tool_outputs")):
		return "openai-assistants"
	}
	return ""
}

// NamesLLM reports whether a request path is that of a streaming LLM API.
func NamesLLM(path string) bool { return formatOfPath(path) != "" }

// AlwaysStreams reports whether the API with this request path answers with a
// stream whatever the request says.
func AlwaysStreams(path string) bool {
	for _, suffix := range []string{":streamGenerateContent", "/converse-stream", "/invoke-with-response-stream", "/generate_stream"} {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}

// StreamsUnlessTold reports whether the API with this request path answers with
// a stream unless the request says "stream":false.
func StreamsUnlessTold(path string) bool {
	return strings.HasSuffix(path, "/api/chat") || strings.HasSuffix(path, "/api/generate")
}

// IsCandidate reports whether a response may be a token stream at all, so that
// a Reader must look at it. contentType is the response's, path the request's.
func IsCandidate(contentType, path string, status int) bool {
	if status < 200 || status > 299 || status == http.StatusNoContent || status == http.StatusResetContent {
		return false
	}
	switch mediaType(contentType) {
	case "text/event-stream",
		"application/x-ndjson", "application/ndjson",
		"application/jsonl", "application/x-jsonl", "application/jsonlines", "application/x-jsonlines",
		"application/stream+json", "application/vnd.amazon.eventstream":
		return true
	case "application/json":
		return formatOfPath(path) == "gemini"
	case "", "text/plain", "application/octet-stream":
		return NamesLLM(path) // some relays drop or rewrite the content type
	}
	return false
}

// mediaType returns a content type in lower case, without its parameters.
func mediaType(contentType string) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(contentType))
}
