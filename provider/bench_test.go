package provider_test

import (
	"bytes"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// A chunk of about 300 bytes, as OpenAI and most others send it.
const benchChunk = `data: {"id":"chatcmpl-C4HqHBe4xca0k0EzsCnf1t6V3YFXp","object":"chat.completion.chunk",` +
	`"created":1755137933,"model":"gpt-5-nano-2025-08-07","service_tier":"default","system_fingerprint":null,` +
	`"choices":[{"index":0,"delta":{"content":" can"},"finish_reason":null}],"obfuscation":"CYlcrzAbbA7aasdg"}` + "\n\n"

const benchToolChunk = `data: {"id":"chatcmpl-C4HqHBe4xca0k0EzsCnf1t6V3YFXp","object":"chat.completion.chunk",` +
	`"created":1755137933,"model":"gpt-5-nano-2025-08-07","system_fingerprint":null,"choices":[{"index":0,` +
	`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}]}` + "\n\n"

const benchDelta = "event: content_block_delta\n" +
	`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" throat pouch for"}          }` + "\n\n"

func BenchmarkReader(b *testing.B) {
	escaped := string(bytes.ReplaceAll([]byte(benchChunk), []byte(" can"), []byte(`\n\u003cp\u003e`)))
	start := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n"
	for name, bm := range map[string]struct {
		first, piece string
		events       int
	}{
		"openai-chat":         {benchChunk, benchChunk, 1},
		"openai-chat escapes": {benchChunk, escaped, 1},
		"openai-chat tool":    {benchToolChunk, benchToolChunk, 1},
		"openai-chat 10":      {benchChunk, string(bytes.Repeat([]byte(benchChunk), 10)), 10},
		"anthropic":           {start, benchDelta, 1},
		"ollama-chat": {"", `{"model":"qwen3.6:latest","created_at":"2026-08-07T06:08:23.577476Z",` +
			`"message":{"role":"assistant","content":" a"},"done":false}` + "\n", 1},
	} {
		b.Run(name, func(b *testing.B) {
			r := provider.NewReader(provider.Options{ContentType: "text/event-stream"})
			r.Feed([]byte(bm.first))
			piece := []byte(bm.piece)
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				if events := r.Feed(piece); len(events) != bm.events {
					b.Fatalf("%d events", len(events))
				}
			}
		})
	}
}
