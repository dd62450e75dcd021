package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// usageAttributes are the names of token counts in the semantic conventions.
var usageAttributes = map[string]string{
	"input":        "gen_ai.usage.input_tokens",
	"output":       "gen_ai.usage.output_tokens",
	"cached_input": "gen_ai.usage.cache_read.input_tokens",
	"cache_write":  "gen_ai.usage.cache_creation.input_tokens",
	"reasoning":    "gen_ai.usage.reasoning.output_tokens",
}

// Trace puts what is known of a response on the span of ctx, where one is
// recorded, by OpenTelemetry's semantic conventions for generative AI.
func (rec *Record) Trace(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	s := rec.Snapshot()
	attributes := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("llm_stream.response_id", rec.ID),
		attribute.String("llm_stream.outcome", string(s.Outcome)),
	}
	requested := ""
	if model := rec.requested.Load(); model != nil {
		requested = *model
	}
	for _, text := range []struct{ key, value string }{
		{"gen_ai.request.model", requested},
		{"gen_ai.response.model", s.Model},
		{"gen_ai.response.id", s.ProviderID},
	} {
		if text.value != "" {
			attributes = append(attributes, attribute.String(text.key, text.value))
		}
	}
	if s.Finish != "" {
		attributes = append(attributes, attribute.StringSlice("gen_ai.response.finish_reasons", []string{string(s.Finish)}))
	}
	for _, count := range directions(s.Usage) {
		attributes = append(attributes, attribute.Int64(usageAttributes[count.direction], count.n))
	}
	if s.FirstToken > 0 {
		attributes = append(attributes, attribute.Float64("gen_ai.response.time_to_first_chunk", s.FirstToken.Seconds()))
	}
	span.SetAttributes(attributes...)
}
