package provider

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

// normalise returns the finish reason for a provider's own word, which is
// empty where it ended the response without one. tools says that tool calls
// were made for the client: several providers call that a stop.
func normalise(word string, tools bool) FinishReason {
	switch word {
	case "", "stop", "end_turn", "stop_sequence", "STOP", "STOP_SEQUENCE",
		"COMPLETE", "completed", "eos", "eos_token", "word":
		if tools {
			return FinishToolCalls
		}
		return FinishStop
	case "length", "limit", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_context_window_exceeded":
		return FinishLength
	case "tool_calls", "tool_use", "function_call", "TOOL_CALL":
		return FinishToolCalls
	case "requires_action": // a kind of stop, where there is an action
		if tools {
			return FinishToolCalls
		}
		return FinishOther
	case "content_filter", "refusal", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "guardrail_intervened":
		return FinishContentFilter
	case "pause_turn":
		return FinishPause
	case "cancelled":
		return FinishCancelled
	default:
		return FinishOther
	}
}
