package observe_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

func metrics() *observe.Metrics {
	plain, _ := observe.NewMetrics(func() int { return 0 })
	return plain
}

// A span that is open has the attributes of the semantic conventions; without
// one nothing happens.
func TestSpanAttributes(t *testing.T) {
	rec := observe.NewBoard().Begin(metrics(), "id22", "text", "", nil)
	defer rec.Leave()
	rec.Identify(observe.Identity{Format: "openai-chat", Model: "gpt-x", ProviderID: "chatcmpl-1"})
	rec.Requested("gpt")
	rec.Output(2, 1500*time.Millisecond)
	usage := &event.TokenUsage{Input: 3, Output: 2}
	rec.End(event.OutcomeDone, &event.Result{Finish: event.FinishStop}, usage)
	rec.Trace(t.Context()) // no span

	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	ctx, span := tracer.Start(context.Background(), "request")
	rec.Trace(ctx)
	span.End()
	got := attribute.NewSet(spans.Ended()[0].Attributes()...)
	for key, want := range map[attribute.Key]attribute.Value{
		"gen_ai.operation.name":               attribute.StringValue("chat"),
		"gen_ai.request.model":                attribute.StringValue("gpt"),
		"gen_ai.response.model":               attribute.StringValue("gpt-x"),
		"gen_ai.response.id":                  attribute.StringValue("chatcmpl-1"),
		"gen_ai.response.finish_reasons":      attribute.StringSliceValue([]string{"stop"}),
		"gen_ai.usage.input_tokens":           attribute.Int64Value(3),
		"gen_ai.usage.output_tokens":          attribute.Int64Value(2),
		"gen_ai.response.time_to_first_chunk": attribute.Float64Value(1.5),
		"llm_stream.outcome":                  attribute.StringValue("done"),
	} {
		if value, ok := got.Value(key); !ok || !reflect.DeepEqual(value.AsInterface(), want.AsInterface()) {
			t.Errorf("%s is %v, not %v", key, value.AsInterface(), want.AsInterface())
		}
	}
}

// What a delta costs to be counted: goal < 50 ns, no allocation.
func BenchmarkRecordOutput(b *testing.B) {
	rec := observe.NewBoard().Begin(metrics(), "id", "text", "", nil)
	defer rec.Leave()
	rec.Identify(observe.Identity{Format: "openai-chat", Model: "m"})
	b.ReportAllocs()
	at := time.Duration(0)
	for b.Loop() {
		at += 20 * time.Millisecond
		rec.Output(1, at)
	}
}
