package llmstream

// Queued returns how many requests wait for a place, at all limits together.
func Queued() int {
	n := 0
	limits.Range(func(_, v any) bool {
		_, queued := v.(pooledLimiter).Stats()
		n += queued
		return true
	})
	return n
}
