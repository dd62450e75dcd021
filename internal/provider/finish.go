package provider

import (
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// finishFailed is the reason of a choice whose generation has failed. It ends
// the response with an error, and leaves this package as FinishOther where
// another choice ended well.
const finishFailed event.FinishReason = "failed"

// finishReasons has the reasons for the words of the providers, in lower case:
// several write them in either.
var finishReasons = map[string]event.FinishReason{
	"":              event.FinishStop, // the provider's own end without a reason
	"stop":          event.FinishStop,
	"end_turn":      event.FinishStop,
	"stop_sequence": event.FinishStop,
	"complete":      event.FinishStop,
	"completed":     event.FinishStop,
	"eos":           event.FinishStop,
	"eos_token":     event.FinishStop,
	"word":          event.FinishStop,

	"length":                        event.FinishLength,
	"limit":                         event.FinishLength,
	"max_tokens":                    event.FinishLength,
	"max_output_tokens":             event.FinishLength,
	"model_context_window_exceeded": event.FinishLength,
	"model_length":                  event.FinishLength,
	"time_limit":                    event.FinishLength,
	"repetition":                    event.FinishLength,
	"incomplete":                    event.FinishLength, // of Responses, without details
	"error_limit":                   event.FinishLength, // Cohere: the context is full

	"tool_calls":    event.FinishToolCalls,
	"tool_use":      event.FinishToolCalls,
	"function_call": event.FinishToolCalls,
	"tool_call":     event.FinishToolCalls,

	"content_filter":           event.FinishContentFilter,
	"content_filtered":         event.FinishContentFilter,
	"refusal":                  event.FinishContentFilter,
	"sensitive":                event.FinishContentFilter,
	"safety":                   event.FinishContentFilter,
	"recitation":               event.FinishContentFilter,
	"blocklist":                event.FinishContentFilter,
	"prohibited_content":       event.FinishContentFilter,
	"spii":                     event.FinishContentFilter,
	"language":                 event.FinishContentFilter,
	"image_safety":             event.FinishContentFilter,
	"image_prohibited_content": event.FinishContentFilter,
	"image_recitation":         event.FinishContentFilter,
	"guardrail_intervened":     event.FinishContentFilter,
	"error_toxic":              event.FinishContentFilter, // Cohere

	"pause_turn": event.FinishPause,
	"cancelled":  event.FinishCancelled,

	"error":                        finishFailed,
	"failed":                       finishFailed,
	"abort":                        finishFailed,
	"aborted":                      finishFailed,
	"network_error":                finishFailed,
	"insufficient_system_resource": finishFailed,
	"malformed_function_call":      finishFailed,
	"malformed_response":           finishFailed,
	"unexpected_tool_call":         finishFailed,
	"too_many_tool_calls":          finishFailed,
	"malformed_model_output":       finishFailed,
	"malformed_tool_use":           finishFailed,
}

// normalize returns the finish reason for a provider's own word, which is
// empty where it ended the response without one. tools says that tool calls
// were made for the client: several providers call that a stop.
func normalize(word string, tools bool) event.FinishReason {
	reason, ok := finishReasons[word]
	if !ok {
		reason, ok = finishReasons[strings.ToLower(word)]
	}
	switch {
	case !ok && word == "requires_action" && tools: // a kind of stop, where there is an action
		return event.FinishToolCalls
	case !ok:
		return event.FinishOther
	case reason == event.FinishStop && tools:
		return event.FinishToolCalls
	}
	return reason
}
