package event

// FinishReason is why a model stopped, in one vocabulary for all providers.
type FinishReason string

// The finish reasons.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishToolCalls     FinishReason = "tool_calls"
	FinishContentFilter FinishReason = "content_filter"
	FinishPause         FinishReason = "pause"
	FinishCancelled     FinishReason = "cancelled"
	FinishOther         FinishReason = "other"
)
