package provider_test

import (
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

func TestNamesLLM(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/v1/chat/completions":                          true,
		"/v1/chat/completions/":                         true,
		"/openai/deployments/d/chat/completions":        true,
		"/v1beta/openai/chat/completions":               true,
		"/v1/completions":                               true,
		"/completion":                                   true,
		"/infill":                                       true,
		"/v1/responses":                                 true,
		"/v1/responses/resp_123":                        true,
		"/v1/messages":                                  true,
		"/v1/projects/p/models/claude:streamRawPredict": true,
		"/v1/complete":                                  true,
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent": true,
		"/v1beta/interactions": true,
		"/api/chat":            true,
		"/api/generate":        true,
		"/v2/chat":             true,
		"/v1/chat":             true,
		"/model/anthropic.claude-v2/converse-stream":          true,
		"/model/anthropic.claude/invoke-with-response-stream": true,
		"/generate_stream":                                            true,
		"/v1/threads/t/runs":                                          true,
		"/v1/threads/runs":                                            true,
		"/ml/v1/text/generation_stream":                               true,
		"/ml/v1/text/chat_stream":                                     true,
		"/v1/threads/t/runs/r/submit_tool_outputs":                    true,
		"/ml/v1-beta/generation/text_stream":                          true,
		"/client/v4/accounts/a/ai/run/@cf/meta/llama-3.1-8b-instruct": true,
		"/v1/a/gateway/workers-ai/@cf/meta/llama-3.1-8b-instruct":     true,
		"/v1/conversations":                                           true,
		"/v1/conversations/conv_1/restart":                            true,
		"/generate":                                                   true,
		"/v2/models/ensemble/generate_stream":                         true,
		"/v2/models/ensemble/versions/1/generate_stream":              true,
		"/api/v1/services/aigc/text-generation/generation":            true,
		"/api/v1/services/aigc/multimodal-generation/generation":      true,
		"/api/v1/apps/a/completion":                                   true,
		"/v1internal:streamGenerateContent":                           true,
		"":                                                            false,
		"/":                                                           false,
		"/v1/models":                                                  false,
		"/v1/messages/count_tokens":                                   false,
		"/v1beta/models/gemini-2.5-flash:generateContent":             false,
		"/events":                  false,
		"/survey/responses/12":     false,
		"/v1/audio/transcriptions": false,
	} {
		if got := provider.NamesLLM(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestIsCandidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contentType, path string
		status            int
		want              bool
	}{
		{"text/event-stream", "", 200, true},
		{"text/event-stream;charset=UTF-8", "", 201, true},
		{"Text/Event-Stream ; charset=utf-8", "", 299, true},
		{"text/event-stream", chatPath, 300, false},
		{"text/event-stream", chatPath, 199, false},
		{"text/event-stream", chatPath, 429, false},
		{"application/x-ndjson", "", 200, true},
		{"application/ndjson", "", 200, true},
		{"application/jsonl", "", 200, true},
		{"application/x-jsonlines", "", 200, true},
		{"application/stream+json", "", 200, true},
		{"application/vnd.amazon.eventstream", "", 200, true},
		{"application/json", chatPath, 200, false},
		{"application/json; charset=UTF-8", "/v1beta/models/g:streamGenerateContent", 200, true},
		{"application/json", "/v1beta/models/g:generateContent", 200, false},
		{"", chatPath, 200, true},
		{"text/plain; charset=utf-8", chatPath, 200, true},
		{"application/octet-stream", "/api/chat", 200, true},
		{"", "/", 200, false},
		{"text/plain", "/robots.txt", 200, false},
		{"text/html", chatPath, 200, false},
	} {
		if got := provider.IsCandidate(tt.contentType, tt.path, tt.status, false); got != tt.want {
			t.Errorf("%q, %q, %d: %v", tt.contentType, tt.path, tt.status, got)
		}
	}
}

func TestWhatRequestPathsTell(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct{ always, unlessTold, noComments, other bool }{
		"/v1/chat/completions":                        {},
		"/v1/completions":                             {other: true},
		"/openai/v1/responses/":                       {other: true},
		"/v1/messages":                                {},
		"/v1beta/models/g:streamGenerateContent":      {always: true, noComments: true},
		"/api/chat":                                   {unlessTold: true},
		"/api/generate":                               {unlessTold: true},
		"/model/m/converse-stream":                    {always: true},
		"/generate_stream":                            {always: true},
		"/ml/v1/text/generation_stream":               {always: true},
		"/ml/v1/deployments/d/text/chat_stream":       {always: true},
		"/ml/v1/deployments/d/generation/text_stream": {always: true},
		"/events": {},
	} {
		got := struct{ always, unlessTold, noComments, other bool }{
			provider.AlwaysStreams(path), provider.StreamsUnlessTold(path), provider.TakesNoComments(path), provider.IsOtherOpenAI(path),
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	// Relays sell streams as JSON where one was asked for.
	for path, want := range map[string]bool{"/v1/chat/completions": true, "/v1/images": false} {
		if got := provider.IsCandidate("application/json", path, 200, true); got != want {
			t.Errorf("JSON at %s: %v", path, got)
		}
	}
}
