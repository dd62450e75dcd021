package provider

import (
	"net/http"
	"strings"
)

// llmPath is what is known of a streaming API by its request paths.
type llmPath struct {
	within string // what the path contains before the suffix
	suffix string // what it ends with
	format string // in which it answers
	streams
	noComments  bool // its SDKs lose the event that follows a comment
	otherOpenAI bool // an endpoint of OpenAI's with a format of its own
}

// streams is when an API answers with a stream.
type streams uint8

const (
	whenAsked  streams = iota // where the body says "stream":true
	unlessTold                // unless the body says "stream":false
	always
)

// llmPaths is the one place that knows request paths. The first entry that
// matches a path counts. Clients reach the same API under many prefixes, of
// gateways and of providers.
var llmPaths = []llmPath{
	{suffix: "/chat/completions", format: "openai-chat"},
	{suffix: "/v1/completions", format: "openai-completions", otherOpenAI: true},
	{suffix: "/completions", format: "openai-completions", otherOpenAI: true}, // llama.cpp answers in its own format
	{within: "/apps/", suffix: "/completion", format: "dashscope"},
	{suffix: "/completion", format: "llamacpp-completion"},
	{suffix: "/infill", format: "llamacpp-completion"},
	{suffix: "/responses", format: "openai-responses", otherOpenAI: true},
	{suffix: "/v1/messages", format: "anthropic-messages"},
	{suffix: ":streamRawPredict", format: "anthropic-messages", streams: always},
	{suffix: "/v1/complete", format: "anthropic-messages"},
	{within: "/v1internal", suffix: ":streamGenerateContent", format: "gemini-code-assist", streams: always, noComments: true},
	{suffix: ":streamGenerateContent", format: "gemini", streams: always, noComments: true},
	{suffix: "/interactions", format: "gemini-interactions"},
	{suffix: "/api/chat", format: "ollama-chat", streams: unlessTold},
	{suffix: "/api/generate", format: "ollama-generate", streams: unlessTold},
	{suffix: "/v2/chat", format: "cohere-v2"},
	{suffix: "/v1/chat", format: "cohere-v1"}, // Writer answers in openai-chat
	{suffix: "/converse-stream", format: "bedrock-converse", streams: always},
	{suffix: "/invoke-with-response-stream", format: "bedrock-invoke", streams: always},
	{within: "/v2/models/", suffix: "/generate_stream", format: "triton", streams: always},
	{suffix: "/generate_stream", format: "tgi", streams: always},
	{suffix: "/generate", format: "sglang"},
	{suffix: "/text/generation_stream", format: "watsonx", streams: always},
	{suffix: "/generation/text_stream", format: "watsonx", streams: always},
	{suffix: "/text/chat_stream", format: "openai-chat", streams: always}, // watsonx, too
	{within: "/services/aigc/", suffix: "-generation/generation", format: "dashscope"},
	{within: "/ai/run/@", format: "cloudflare-workers-ai"},
	{within: "/workers-ai/@", format: "cloudflare-workers-ai"}, // of Cloudflare's gateway
	{within: "/v1/conversations", format: "mistral-conversations"},
	{within: "/responses/resp_", format: "openai-responses"}, // a stored response, read again
	{within: "/threads/", suffix: "/runs", format: "openai-assistants"},
	{within: "/threads/", suffix: "/submit_tool_outputs", format: "openai-assistants"},
}

// matches reports whether a request path is of the API.
func (p *llmPath) matches(path string) bool {
	return strings.HasSuffix(path, p.suffix) && strings.Contains(path, p.within)
}

// lookup returns what is known of a request path; nothing where it is no LLM
// API that we know.
func lookup(path string) llmPath {
	path = strings.TrimSuffix(path, "/")
	for i := range llmPaths {
		if p := &llmPaths[i]; p.matches(path) {
			return *p
		}
	}
	return llmPath{}
}

// formatOfPath returns the name of the format that the API with this request
// path answers in, empty where it is no LLM API that we know. It is a hint:
// what a backend sends outranks it.
func formatOfPath(path string) string { return lookup(path).format }

// AlwaysStreams reports whether the API with a request path answers with a
// stream whatever the request says.
func AlwaysStreams(path string) bool { return lookup(path).streams == always }

// StreamsUnlessTold reports whether the API with a request path answers with a
// stream unless the request says "stream":false.
func StreamsUnlessTold(path string) bool { return lookup(path).streams == unlessTold }

// TakesNoComments reports whether the clients of the API with a request path
// lose the event that follows a comment, so that its streams get no heartbeat
// where they pass through.
func TakesNoComments(path string) bool { return lookup(path).noComments }

// IsOtherOpenAI reports whether a request path is that of an endpoint of
// OpenAI's whose stream is no chat completion, so that its clients cannot read
// one either.
func IsOtherOpenAI(path string) bool { return lookup(path).otherOpenAI }

// NamesLLM reports whether a request path is that of a streaming LLM API.
func NamesLLM(path string) bool { return formatOfPath(path) != "" }

// IsCandidate reports whether a response may be a token stream at all, so that
// a Reader must look at it. contentType is the response's, path the request's.
// asked is whether the request asked for a stream: then, on the path of an LLM
// API, relays sell one as JSON.
func IsCandidate(contentType, path string, status int, asked bool) bool {
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
		return streamsInArray(path) || asked && NamesLLM(path)
	case "", "text/plain", "application/octet-stream":
		return NamesLLM(path) // some relays drop or rewrite the content type
	}
	return false
}

// streamsInArray reports whether the API with a request path may answer with one
// JSON array whose elements are its events.
func streamsInArray(path string) bool {
	f := formatNamed(formatOfPath(path))
	return f != nil && f.framing&framingArray != 0
}

// mediaType returns a content type in lower case, without its parameters.
func mediaType(contentType string) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(contentType))
}
