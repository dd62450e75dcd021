package llmstream

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestKnownVendorClients(t *testing.T) {
	for agent, want := range map[string]string{
		"OpenAI/JS 6.49.0":      "OpenAI's SDK",
		"AsyncOpenAI/Python 2.": "OpenAI's SDK",
		"langchainjs-openai/1.0.0 ((node/v20; linux)) OpenAI/JS": "LangChain",
		"Anthropic/JS 1.14.0":                          "Anthropic's SDK",
		"ai-sdk/anthropic/3.0 ai/6.0":                  "Anthropic's SDK",
		"ai/6.0.326 ai-sdk/openai/3.0.139":             "Vercel's AI SDK",
		"codex_cli_rs/0.60.1 (Ubuntu 24.4.0; x86_64)":  "Codex",
		"GeminiCLI/v0.1.9 (linux; x64)":                "gemini-cli",
		"google-genai-sdk/2.32.0 gl-node/v20.20.2":     "Google's SDK",
		"ollama-js/0.6.4 (x64 linux Node.js/v20.20.2)": "Ollama's client",
		"Go-http-client/1.1":                           "go-openai",
		"Mozilla/5.0 (X11; Linux x86_64)":              "",
		"curl/8.14.1":                                  "",
		"":                                             "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
		r.Header.Set("User-Agent", agent)
		r.Header.Set("Authorization", "Bearer k")
		name := ""
		if i := vendorClientOf(r); i >= 0 {
			name = vendorClients[i].name
		}
		if name != want {
			t.Errorf("%q is %q, not %q", agent, name, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r.Header.Set("User-Agent", "Go-http-client/1.1")
	if vendorClientOf(r) >= 0 {
		t.Error("a program in Go without a key is taken for go-openai")
	}
}

// One client is named once an hour, however often it asks.
func TestEmitIsWarnedOfOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		warnings, logger := newEmitWarnings(), zap.New(core)
		ask := func(agent string) {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			r.Header.Set("User-Agent", agent)
			warnings.answered(r, logger)
		}
		for range 3 {
			ask("OpenAI/JS 6")
			ask("Anthropic/JS 1")
			ask("curl/8")
			time.Sleep(29 * time.Minute)
		}
		if logs.Len() != 2 {
			t.Errorf("%d warnings in the first hour", logs.Len())
		}
		time.Sleep(time.Hour)
		ask("OpenAI/JS 6")
		if logs.Len() != 3 {
			t.Errorf("%d warnings in all", logs.Len())
		}
		entry := logs.All()[0]
		if fields := entry.ContextMap(); fields["client"] != "OpenAI's SDK" || fields["emit"] != "openai" || !strings.Contains(entry.Message, "set emit") {
			t.Errorf("%s %v", entry.Message, fields)
		}
	})
}

// What is known of clients, people can read.
func TestRecipesNameVendorClients(t *testing.T) {
	recipes, err := os.ReadFile("docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range vendorClients {
		if agent := "`" + vendorClients[i].agent; !strings.Contains(strings.ToLower(string(recipes)), agent) {
			t.Errorf("docs/recipes.md does not have the User-Agent %s", vendorClients[i].agent)
		}
	}
}
