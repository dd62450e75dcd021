package observe

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// directionCount is a token count as a value of the label direction.
type directionCount struct {
	direction string
	n         int64
}

// mostTokens is how much one response adds to a counter of tokens at most. A
// backend may say any number, and a counter is a float64: beyond 2⁵³ it would
// not move any more for the others.
const mostTokens = 1 << 31

// directions returns the token counts that a provider has sent: of all input and
// all output, and of the parts of them that it tells apart.
func directions(usage *event.TokenUsage) []directionCount {
	if usage == nil {
		return nil
	}
	var counts []directionCount
	for _, count := range []directionCount{{"input", usage.Input}, {"output", usage.Output}} {
		if count.n >= 0 {
			counts = append(counts, count)
		}
	}
	for _, part := range []directionCount{
		{"cached_input", usage.CachedInput}, {"cache_write", usage.CacheWrite}, {"reasoning", usage.Reasoning},
	} {
		if part.n > 0 {
			counts = append(counts, part)
		}
	}
	return counts
}
