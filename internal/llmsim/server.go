package llmsim

import (
	"fmt"
	"slices"
	"strings"
)

// Server is the program whose ways a Backend has, where several speak the same
// API in different ways.
//
// ServerOllama has two paths more, /v1/completions and /v1/responses, and in all
// of them Ollama's ways:
//
//   - The headers come with the first token, and a tool call comes whole. In
//     /api/* that is so at every server.
//   - Chat completions have the role in every chunk.
//   - Completions have no thoughts: their tokens are blank chunks.
//   - Messages begin with an estimate of the input tokens, which is too low, and
//     give a call after thoughts the index of their block, which is still open.
//   - Responses are completed at the token limit too.
//   - An error in mid-stream is a line in /api/*, a blank chunk without a model in
//     chat completions and completions, and nothing in messages and responses.
type Server string

// The servers.
const (
	ServerNone   Server = ""       // each API as its own provider has it
	ServerOllama Server = "ollama" // Ollama 0.17
)

// serverNames lists what ParseServer accepts besides "none".
var serverNames = []Server{ServerOllama}

// ParseServer returns the server of that name; "none" is ServerNone. The error is
// ErrInvalid and lists the names.
func ParseServer(name string) (Server, error) {
	if name == "none" {
		return ServerNone, nil
	}
	if s := Server(name); slices.Contains(serverNames, s) {
		return s, nil
	}
	names := make([]string, 0, len(serverNames)+1)
	names = append(names, "none")
	for _, s := range serverNames {
		names = append(names, string(s))
	}
	return ServerNone, fmt.Errorf("%w: unknown server %q, want one of %s", ErrInvalid, name, strings.Join(names, ", "))
}

// The content types of what is not streamed.
const (
	jsonType        = "application/json"
	jsonUTF8Type    = "application/json; charset=utf-8"
	eventStreamType = "text/event-stream"
)

// ollamaChat and ollamaGenerate are Ollama's own APIs, which are the same at all
// servers.
var (
	ollamaChat = api{
		toolSteps: 1, streams: true, ollama: true,
		wholeType: jsonUTF8Type, errorBody: ollamaErrorBody, writer: newOllamaChatWriter,
	}
	ollamaGenerate = api{
		streams: true, ollama: true,
		wholeType: jsonUTF8Type, errorBody: ollamaErrorBody, writer: newOllamaGenerateWriter,
	}
)

// apis maps the paths that generate to their APIs, for each server.
var apis = map[Server]map[string]api{
	ServerNone: {
		"/v1/chat/completions": {
			toolSteps: len(toolFragments), noCache: true,
			wholeType: jsonType, errorBody: openAIErrorBody, writer: newOpenAIWriter,
		},
		"/v1/messages": {
			toolSteps: len(toolFragments), noCache: true,
			wholeType: jsonType, errorBody: anthropicErrorBody, writer: newAnthropicWriter,
		},
		"/api/chat":     ollamaChat,
		"/api/generate": ollamaGenerate,
	},
	ServerOllama: {
		"/v1/chat/completions": {
			toolSteps: 1, ollama: true,
			wholeType: jsonType, errorBody: ollamaOpenAIErrorBody, writer: newOllamaChunkWriter,
		},
		"/v1/completions": {
			ollama:    true,
			wholeType: jsonType, errorBody: ollamaOpenAIErrorBody, writer: newOllamaCompletionWriter,
		},
		"/v1/messages": {
			toolSteps: 1, ollama: true, noCache: true,
			wholeType: jsonType, errorBody: ollamaAnthropicErrorBody, writer: newOllamaMessageWriter,
		},
		"/v1/responses": {
			toolSteps: 1, ollama: true, noCache: true,
			wholeType: jsonType, errorBody: ollamaOpenAIErrorBody, writer: newOllamaResponsesWriter,
		},
		"/api/chat":     ollamaChat,
		"/api/generate": ollamaGenerate,
	},
}
