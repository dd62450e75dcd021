package provider

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// normalise returns the finish reason for a provider's own word, which is
// empty where it ended the response without one. tools says that tool calls
// were made for the client: several providers call that a stop.
func normalise(word string, tools bool) event.FinishReason {
	switch word {
	case "", "stop", "end_turn", "stop_sequence", "STOP", "STOP_SEQUENCE",
		"COMPLETE", "completed", "eos", "eos_token", "word":
		if tools {
			return event.FinishToolCalls
		}
		return event.FinishStop
	case "length", "limit", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_context_window_exceeded":
		return event.FinishLength
	case "tool_calls", "tool_use", "function_call", "TOOL_CALL":
		return event.FinishToolCalls
	case "requires_action": // a kind of stop, where there is an action
		if tools {
			return event.FinishToolCalls
		}
		return event.FinishOther
	case "content_filter", "refusal", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "guardrail_intervened":
		return event.FinishContentFilter
	case "pause_turn":
		return event.FinishPause
	case "cancelled":
		return event.FinishCancelled
	default:
		return event.FinishOther
	}
}
