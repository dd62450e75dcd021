package provider_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
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

// benchEvents has an event with one delta for every format, as its provider
// sends it, and what must come before it.
var benchEvents = map[string]struct{ first, piece string }{
	"openai-chat":         {"", benchChunk},
	"openai-chat escapes": {"", strings.ReplaceAll(benchChunk, " can", `\n\u003cp\u003e`)},
	"openai-chat tool":    {"", benchToolChunk},
	"openai-completions": {"", `data: {"id":"cmpl-C47NOaCIl9N1MIAuyc5euKf6hpnqn","object":"text_completion","created":1755097702,` +
		`"choices":[{"text":" Identify","index":0,"logprobs":null,"finish_reason":null}],"model":"gpt-3.5-turbo-instruct:20230824-v2"}` + "\n\n"},
	"openai-responses": {"", "event: response.output_text.delta\n" +
		`data: {"type":"response.output_text.delta","content_index":0,"delta":" check",` +
		`"item_id":"msg_0fabc13af1ee0049006a691dfebdc881a1ae18d027c313d8ce","logprobs":[],"obfuscation":"VXalrhZ6zy",` +
		`"output_index":1,"sequence_number":8}` + "\n\n"},
	"openai-assistants": {"", "event: thread.message.delta\n" +
		`data: {"id":"msg_aE8rVjHgqA1LpVHKNtXOMnSj","object":"thread.message.delta",` +
		`"delta":{"content":[{"index":0,"type":"text","text":{"value":" solution"}}]}}` + "\n\n"},
	"anthropic-messages": {"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n", benchDelta},
	"gemini": {"", `data: {"candidates": [{"content": {"parts": [{"text": "0 prime numbers are: 2, 3, 5, 7"}],"role": "model"},"index": 0}],` +
		`"usageMetadata": {"promptTokenCount": 32,"candidatesTokenCount": 250,"totalTokenCount": 1286,` +
		`"promptTokensDetails": [{"modality": "TEXT","tokenCount": 32}],"thoughtsTokenCount": 240,"serviceTier": "standard"},` +
		`"modelVersion": "gemini-2.5-flash","responseId": "ntcEapytNbDmqtsP2JrvyQs"}` + "\r\n\r\n"},
	"gemini arguments": {
		`data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}` + "\n\n",
		`data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.recipe.steps[0].text",` +
			`"stringValue":"Boil","willContinue":true}],"willContinue":true}}]}}],"usageMetadata":{"trafficType":"ON_DEMAND"},` +
			`"modelVersion":"gemini-3.1-pro-preview","createTime":"2026-04-07T16:49:58.333958Z","responseId":"tjXVaYaxFISTq8YP_MWiyAo"}` + "\n\n",
	},
	"gemini-interactions": {"", "event: step.delta\n" +
		`data: {"index":1,"delta":{"text":" the sky appear blue.","type":"text"},"event_type":"step.delta"}` + "\n\n"},
	"ollama-chat": {"", `{"model":"qwen3.6:latest","created_at":"2026-08-07T06:08:23.577476Z",` +
		`"message":{"role":"assistant","content":" a"},"done":false}` + "\n"},
	"ollama-generate": {"", `{"model":"qwen3.6:latest","created_at":"2026-08-07T06:08:23.577476Z","response":" a","done":false}` + "\n"},
	"cohere-v2": {"", "event: content-delta\n" +
		`data: {"type":"content-delta","index":1,"delta":{"message":{"content":{"text":" productive"}}}}` + "\n\n"},
	"cohere-v1": {"", `{"is_finished":false,"event_type":"text-generation","text":" First"}` + "\n"},
	"bedrock-converse": {"", converseFrame("contentBlockDelta",
		`{"contentBlockIndex":0,"delta":{"text":" monitoring"},"p":"abcdefghijklmnopqrstuvwxyzABCDEFGHI"}`)},
	"bedrock-invoke":       {"", invokeFrames(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"_current_weather"}}`)},
	"bedrock-invoke nova":  {"", invokeFrames(`{"contentBlockDelta":{"delta":{"text":" capital city"},"contentBlockIndex":1}}`)},
	"bedrock-invoke llama": {"", invokeFrames(`{"generation":" phrase","prompt_token_count":null,"generation_token_count":4,"stop_reason":null}`)},
	"tgi":                  {"", `data:{"index":3,"token":{"id":1784,"text":" deep","logprob":-0.7211914,"special":false},"generated_text":null,"details":null}` + "\n\n"},
	"llamacpp-completion":  {"", `data: {"index":0,"content":" planet","stop":false,"id_slot":-1,"tokens_predicted":2,"tokens_evaluated":16}` + "\n\n"},
	"mistral-conversations": {"", "event: message.output.delta\n" +
		`data: {"type":"message.output.delta","created_at":"2026-03-11T08:15:42.218Z","output_index":0,"id":"msg_0198f3c0b4d1",` +
		`"content_index":0,"model":"mistral-medium-2505","agent_id":null,"role":"assistant","content":" harbor"}` + "\n\n"},
	"gemini-code-assist": {"", `data: {"response":{"candidates":[{"content":{"role":"model","parts":[{"text":" tide tables"}]}}],` +
		`"usageMetadata":{"trafficType":"PROVISIONED"},"modelVersion":"gemini-2.5-pro"},"traceId":"7be1f0c2a9d44e51"}` + "\n\n"},
	"dashscope": {
		`data:{"output":{"choices":[{"message":{"role":"assistant","content":"The"},"finish_reason":"null"}]}}` + "\n\n",
		"id:4\nevent:result\n:HTTP_STATUS/200\n" +
			`data:{"output":{"choices":[{"message":{"content":" ferry","role":"assistant"},"finish_reason":"null"}]},` +
			`"usage":{"total_tokens":31,"input_tokens":26,"output_tokens":5},"request_id":"2c4f6a1e-93b7-9d0e-8a15-5f0c7b6e1d42"}` + "\n\n",
	},
	"sglang": {"", `data: {"text":" lantern","output_ids":[40118],"meta_info":{"id":"5b0c2f4d9e7a4c18","finish_reason":null,` +
		`"prompt_tokens":9,"completion_tokens":6,"cached_tokens":0}}` + "\n\n"},
	"triton": {"", `data: {"model_name":"ensemble","model_version":"1","sequence_end":false,"sequence_id":0,"sequence_start":false,` +
		`"text_output":" rope"}` + "\n\n"},
	"cloudflare-workers-ai": {"", `data: {"response":" gull","p":"abdefghijklmn"}` + "\n\n"},
	"watsonx": {"", "id: 5\nevent: message\n" + `data: {"model_id":"google/flan-ul2","created_at":"2024-03-10T14:40:37.785Z",` +
		`"results":[{"generated_text":" the","generated_token_count":4,"input_token_count":0,"stop_reason":"not_finished"}]}` + "\n\n"},
}

// BenchmarkFormat measures one event with one delta. To compare formats, mind
// that their events differ in size.
func BenchmarkFormat(b *testing.B) {
	for name, bm := range benchEvents {
		b.Run(name, func(b *testing.B) { benchmarkReader(b, bm.first, bm.piece, 1) })
	}
}

func BenchmarkTenAtOnce(b *testing.B) {
	benchmarkReader(b, "", strings.Repeat(benchChunk, 10), 10)
}

// benchmarkReader reads a piece with this many deltas over and over.
func benchmarkReader(b *testing.B, first, piece string, deltas int) {
	b.Helper()
	r := provider.NewReader(provider.Options{ContentType: "text/event-stream"})
	r.Feed([]byte(first + piece))
	body := []byte(piece)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if events := r.Feed(body); len(events) != deltas {
			b.Fatalf("%d events", len(events))
		}
		r.Release()
	}
}

// TestDeltasAllocateNothing: once a stream runs, its events cost no memory.
func TestDeltasAllocateNothing(t *testing.T) {
	for name, bm := range benchEvents {
		r := provider.NewReader(provider.Options{ContentType: "text/event-stream"})
		r.Feed([]byte(bm.first + bm.piece))
		piece, events := []byte(bm.piece), 0
		allocs := testing.AllocsPerRun(100, func() { events += len(r.Feed(piece)) })
		if allocs > 0 || events != 101 {
			t.Errorf("%s: %v allocations a delta, %d events", name, allocs, events)
		}
	}
}
