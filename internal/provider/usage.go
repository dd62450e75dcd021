package provider

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// tokenCounts is what a provider says in an object with token counts.
type tokenCounts struct {
	event.TokenUsage

	// What some providers count beside Input and Output.
	thoughts   int64
	toolUse    int64 // prompts that the provider has made for its tools
	cacheRead  int64
	cacheWrite int64
}

// decodeUsage reads an object with token counts whose parts are counted in the
// whole.
func decodeUsage(c *json.Cursor) event.TokenUsage { return readCounts(c).TokenUsage }

// readCounts reads an object with token counts. No two providers mean different
// things by the same name, except that of a cache.
func readCounts(c *json.Cursor) tokenCounts {
	n := tokenCounts{TokenUsage: noUsage}
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "total_input_tokens", "inputTokenCount":
			n.Input = c.Count()
		case "completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "total_output_tokens", "outputTokenCount":
			n.Output = c.Count()
		case "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details":
			n.readDetails(c)
		case "cached_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "total_cached_tokens":
			addCount(&n.CachedInput, c.Count())
		case "reasoning_tokens":
			addCount(&n.Reasoning, c.Count())
		case "thoughtsTokenCount", "total_thought_tokens":
			addCount(&n.thoughts, c.Count())
		case "toolUsePromptTokenCount", "total_tool_use_tokens":
			addCount(&n.toolUse, c.Count())
		case "cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount":
			addCount(&n.cacheRead, c.Count())
		case "cache_creation_input_tokens", "cacheWriteInputTokens", "cacheWriteInputTokenCount":
			addCount(&n.cacheWrite, c.Count())
		default:
			c.Skip()
		}
	}
	return n
}

// readDetails reads the parts of a count.
func (n *tokenCounts) readDetails(c *json.Cursor) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "cached_tokens":
			addCount(&n.CachedInput, c.Count())
		case "cache_write_tokens", "cache_creation_tokens":
			addCount(&n.CacheWrite, c.Count())
		case "reasoning_tokens", "thinking_tokens":
			addCount(&n.Reasoning, c.Count())
		default:
			c.Skip()
		}
	}
}

// apartCounts has the token counts of an API that counts some parts beside the
// rest: Anthropic's and Amazon's what came from a cache and what went into it,
// Gemini's what was thought and what its tools were asked. They may come in
// several events, and each replaces only what it names.
type apartCounts struct {
	known bool
	sum   tokenCounts
}

// read reads an object with token counts and returns all counts so far.
func (a *apartCounts) read(c *json.Cursor) event.TokenUsage {
	if !a.known {
		a.known = true
		a.sum.TokenUsage = noUsage
	}
	n := readCounts(c)
	addCount(&a.sum.Input, n.Input)
	addCount(&a.sum.Output, n.Output)
	addCount(&a.sum.CachedInput, n.CachedInput)
	addCount(&a.sum.Reasoning, n.Reasoning)
	addCount(&a.sum.thoughts, n.thoughts)
	addCount(&a.sum.toolUse, n.toolUse)
	addCount(&a.sum.cacheRead, n.cacheRead)
	addCount(&a.sum.cacheWrite, n.cacheWrite)
	usage := a.sum.TokenUsage
	if more := a.sum.cacheRead + a.sum.cacheWrite + a.sum.toolUse; more > 0 {
		usage.Input = max(usage.Input, 0) + more
	}
	if a.sum.thoughts > 0 {
		usage.Output = max(usage.Output, 0) + a.sum.thoughts
	}
	addCount(&usage.CachedInput, a.sum.cacheRead)
	addCount(&usage.CacheWrite, a.sum.cacheWrite)
	addCount(&usage.Reasoning, a.sum.thoughts)
	return usage
}
