package llmstream

// Queued returns how many requests wait for a place, at all limits together.
func Queued() int { return queuedRequests() }
