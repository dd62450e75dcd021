package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"context"
	"errors"
	"net/http"
	"os"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// report ends the record of a response after its producer. What has passed
// through and was no stream is not counted. clientOutcome says what the client
// did where the response was bound to it; empty for nothing.
func (p *producer) report(clientOutcome outcomeName) {
	defer p.record.leave()
	outcome := clientOutcome
	switch {
	case outcome != "":
	case p.terminal == nil:
		return
	case errors.Is(context.Cause(p.ctx), fanout.ErrAbandoned):
		outcome = outcomeClientGone
	default:
		outcome = outcomeOf(p.terminal)
	}
	var result *event.Result
	if p.terminal != nil && p.terminal.Kind == event.Done {
		result = p.terminal.Result
	}
	if p.record.end(outcome, result, p.usage(result)) {
		p.record.log(p.handler.logger)
	}
}

// usage returns the token counts that the provider has sent, also where the
// response has not come to its end.
func (p *producer) usage(result *event.Result) *event.TokenUsage {
	switch {
	case result != nil:
		return result.Usage
	case p.reader != nil:
		return p.reader.Usage()
	}
	return nil
}

// fate is what a client did to a response that is bound to it; empty where it
// stayed to the end.
func (c *client) fate(r *http.Request, upstream context.Context) outcomeName {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(context.Cause(upstream), errDraining):
		return outcomeDrained
	case c.dismissed.Load() || errors.Is(c.err, os.ErrDeadlineExceeded):
		return outcomeSlowClient
	case c.err != nil, r.Context().Err() != nil && !c.ended:
		return outcomeClientGone
	}
	return ""
}

// attachRecord makes a response visible in the access log, in placeholders and
// in the span of the client's request.
func attachRecord(r *http.Request, rec *record) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("llm_stream", rec))
	}
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	repl.Map(func(key string) (any, bool) {
		switch key {
		case "http.llm_stream.response_id":
			return rec.id, true
		case "http.llm_stream.outcome":
			return string(rec.snapshot().outcome), true
		case "http.llm_stream.model":
			return rec.snapshot().model, true
		case "http.llm_stream.first_token_ms":
			return rec.snapshot().firstTokenMS, true
		}
		return nil, false
	})
}

// trace puts what is known of a response on the span that Caddy's tracing has
// opened for the request, by the semantic conventions for generative AI.
func (rec *record) trace(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	s := rec.snapshot()
	attributes := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("llm_stream.response_id", rec.id),
		attribute.String("llm_stream.outcome", string(s.outcome)),
	}
	if requested := rec.requested.Load(); requested != nil && *requested != "" {
		attributes = append(attributes, attribute.String("gen_ai.request.model", *requested))
	}
	if s.model != "" {
		attributes = append(attributes, attribute.String("gen_ai.response.model", s.model))
	}
	if s.provider != "" {
		attributes = append(attributes, attribute.String("gen_ai.response.id", s.provider))
	}
	if s.finish != "" {
		attributes = append(attributes, attribute.StringSlice("gen_ai.response.finish_reasons", []string{string(s.finish)}))
	}
	if s.usage != nil && s.usage.Input >= 0 {
		attributes = append(attributes, attribute.Int64("gen_ai.usage.input_tokens", s.usage.Input))
	}
	if s.usage != nil && s.usage.Output >= 0 {
		attributes = append(attributes, attribute.Int64("gen_ai.usage.output_tokens", s.usage.Output))
	}
	if s.firstTokenMS > 0 {
		attributes = append(attributes, attribute.Float64("gen_ai.response.time_to_first_chunk", s.firstTokenMS/1000))
	}
	span.SetAttributes(attributes...)
}

// followed is what the access log has of a request that follows a response.
type followed struct {
	response *fanout.Response
	client   *client
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (f followed) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	_, terminal := f.response.Head()
	enc.AddString("response_id", f.response.ID())
	enc.AddString("model", f.response.Model())
	enc.AddString("status", string(fanout.StatusOf(terminal)))
	enc.AddInt64("client_bytes", f.client.sent.Load())
	return nil
}

// logFollowed puts a followed response into the access log.
func logFollowed(r *http.Request, response *fanout.Response, c *client) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("llm_stream", followed{response, c}))
	}
}

// resumeResult counts a request that resumes or follows, by what becomes of it.
func (h *Handler) resumeResult(err error) {
	result := "resumed"
	switch {
	case err == nil:
	case errors.Is(err, errAtEnd):
		result = "ended"
	case errors.Is(err, fanout.ErrBadCursor):
		result = "bad_cursor"
	case errors.Is(err, fanout.ErrExpired), errors.Is(err, fanout.ErrForgotten):
		result = "expired"
	default:
		result = "unknown"
	}
	h.app.metrics.resumes.WithLabelValues(result).Inc()
}

// errAtEnd says that a client has had everything.
var errAtEnd = errors.New("the client has had everything")

// Interface guards
var _ zapcore.ObjectMarshaler = followed{}
