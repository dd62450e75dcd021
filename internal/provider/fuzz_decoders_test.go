package provider_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// One target for each format, so that a fuzzer spends its time in that decoder
// instead of looking for what all formats are recognized by.

func FuzzAnthropic(f *testing.F)          { fuzzDecoder(f, "anthropic-messages") }
func FuzzBedrockConverse(f *testing.F)    { fuzzDecoder(f, "bedrock-converse") }
func FuzzBedrockInvoke(f *testing.F)      { fuzzDecoder(f, "bedrock-invoke") }
func FuzzCloudflare(f *testing.F)         { fuzzDecoder(f, "cloudflare-workers-ai") }
func FuzzCohereV1(f *testing.F)           { fuzzDecoder(f, "cohere-v1") }
func FuzzCohereV2(f *testing.F)           { fuzzDecoder(f, "cohere-v2") }
func FuzzDashScope(f *testing.F)          { fuzzDecoder(f, "dashscope") }
func FuzzGemini(f *testing.F)             { fuzzDecoder(f, "gemini") }
func FuzzGeminiCodeAssist(f *testing.F)   { fuzzDecoder(f, "gemini-code-assist") }
func FuzzGeminiInteractions(f *testing.F) { fuzzDecoder(f, "gemini-interactions") }
func FuzzLlamaCpp(f *testing.F)           { fuzzDecoder(f, "llamacpp-completion") }
func FuzzMistral(f *testing.F)            { fuzzDecoder(f, "mistral-conversations") }
func FuzzOllamaChat(f *testing.F)         { fuzzDecoder(f, "ollama-chat") }
func FuzzOllamaGenerate(f *testing.F)     { fuzzDecoder(f, "ollama-generate") }
func FuzzOpenAIAssistants(f *testing.F)   { fuzzDecoder(f, "openai-assistants") }
func FuzzOpenAIChat(f *testing.F)         { fuzzDecoder(f, "openai-chat") }
func FuzzOpenAICompletions(f *testing.F)  { fuzzDecoder(f, "openai-completions") }
func FuzzOpenAIResponses(f *testing.F)    { fuzzDecoder(f, "openai-responses") }
func FuzzSGLang(f *testing.F)             { fuzzDecoder(f, "sglang") }
func FuzzTGI(f *testing.F)                { fuzzDecoder(f, "tgi") }
func FuzzTriton(f *testing.F)             { fuzzDecoder(f, "triton") }
func FuzzWatsonx(f *testing.F)            { fuzzDecoder(f, "watsonx") }

// fuzzDecoder reads an event by which the format is recognized, and after it
// the events that the fuzzer makes: each line is one, its payload or its name,
// a space and its payload. What holds for FuzzReader holds here.
func fuzzDecoder(f *testing.F, format string) {
	f.Helper()
	bm, ok := benchEvents[format]
	if !ok {
		f.Fatalf("no event of %s", format)
	}
	write := eventWriters[format]
	if write == nil {
		write = serverSentEvent
	}
	contentType := "text/event-stream"
	if strings.HasPrefix(format, "bedrock-") {
		contentType = eventStream
	}
	f.Fuzz(func(t *testing.T, events string, seed uint64, limit uint8) {
		var b strings.Builder
		b.WriteString(bm.first + bm.piece)
		for line := range strings.Lines(events) {
			name, payload, named := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if !named || len(name) > 100 || strings.ContainsAny(name, `{["`) {
				name, payload = "", strings.TrimSuffix(line, "\n")
			}
			b.WriteString(write(name, payload))
		}
		body := []byte(b.String())
		o := provider.Options{ContentType: contentType, MaxEvent: []int{1 << 20, 700}[limit%2]}
		atOnce := provider.NewReader(o)
		want := readAll(t, atOnce, body, whole)
		checkEvents(t, atOnce, want)
		if atOnce.Format() != format {
			t.Errorf("read as %q", atOnce.Format())
		}
		for _, split := range []func(int) int{func(int) int { return 1 }, randomPieces(rand.New(rand.NewPCG(seed, 11)))} {
			r := provider.NewReader(o)
			if got := readAll(t, r, body, split); !reflect.DeepEqual(got, want) || r.Skipped() != atOnce.Skipped() {
				t.Errorf("cut in pieces: %+v\nat once: %+v", got, want)
			}
		}
	})
}

// eventWriters write an event of the formats that are not server-sent events.
var eventWriters = map[string]func(name, payload string) string{
	"bedrock-converse": func(name, payload string) string {
		if strings.HasSuffix(name, "Exception") {
			return exceptionFrame(name, payload)
		}
		return converseFrame(name, payload)
	},
	"bedrock-invoke": func(name, payload string) string {
		if strings.HasSuffix(name, "Exception") {
			return exceptionFrame(name, payload)
		}
		return invokeFrames(payload)
	},
	"cohere-v1":       jsonLine,
	"ollama-chat":     jsonLine,
	"ollama-generate": jsonLine,
}

func serverSentEvent(name, payload string) string {
	if name == "" {
		return "data: " + payload + "\n\n"
	}
	return "event: " + name + "\ndata: " + payload + "\n\n"
}

func jsonLine(_, payload string) string { return payload + "\n" }
