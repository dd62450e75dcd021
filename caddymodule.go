// Package llmstream is a Caddy HTTP handler that reads the token streams of LLM
// backends on their way to the client.
//
// A response that is a token stream is decoded into a log of text deltas, and
// every client is written the part of the log that it has not had yet. All
// other responses pass through untouched.
package llmstream

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/emit"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler reads the token streams that the next handlers answer with, usually
// reverse_proxy in front of an LLM backend, and re-emits them as text deltas.
// The wire format of the backend is recognized from the response. Responses
// that are not token streams pass through untouched.
//
// Headers are committed with the first frame, so that a failure before it is
// an HTTP status and not a broken stream.
type Handler struct {
	// The dialect that clients get: `text` (server-sent events with text
	// deltas) or `passthrough` (the backend's own bytes). May be a placeholder;
	// an empty value is `text`, and an unknown one is answered with 400.
	// Default: `text`.
	Emit string `json:"emit,omitempty"`

	// What the dialect `text` carries besides text: `reasoning`, `tool_calls`.
	// Refusals, usage and finish reason are always there. Default: nothing.
	Include []string `json:"include,omitempty"`

	// The longest single event of an upstream stream, in bytes. A longer one
	// ends the response with the error event_too_large. Default: 1 MiB.
	MaxEvent int64 `json:"max_event,omitempty"`

	logger    *zap.Logger
	reasoning bool
	toolCalls bool
}

// The values of include.
const (
	includeReasoning = "reasoning"
	includeToolCalls = "tool_calls"
)

const defaultMaxEvent = 1 << 20

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_stream",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets up the handler.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	h.reasoning = slices.Contains(h.Include, includeReasoning)
	h.toolCalls = slices.Contains(h.Include, includeToolCalls)
	if h.MaxEvent == 0 {
		h.MaxEvent = defaultMaxEvent
	}
	return nil
}

// Validate makes sure that the configuration can work.
func (h *Handler) Validate() error {
	if !strings.Contains(h.Emit, "{") && !knownDialect(h.Emit) {
		return fmt.Errorf("emit: unknown dialect %q; must be one of %s", h.Emit, strings.Join(dialects, ", "))
	}
	for i, what := range h.Include {
		if what != includeReasoning && what != includeToolCalls {
			return fmt.Errorf("include: unknown value %q; must be %s or %s", what, includeReasoning, includeToolCalls)
		}
		if slices.Contains(h.Include[:i], what) {
			return fmt.Errorf("include: %s is given twice", what)
		}
	}
	if h.MaxEvent < 1 {
		return fmt.Errorf("max_event: must be at least 1 byte, not %d", h.MaxEvent)
	}
	return nil
}

// dialects are the values of emit.
var dialects = []string{emit.DialectText, emit.DialectPassthrough}

func knownDialect(name string) bool {
	return name == "" || slices.Contains(dialects, name)
}

// maxEvent is max_event for the packages that count in int.
func (h *Handler) maxEvent() int { return int(h.MaxEvent) }

// emits reports whether output of a kind goes into the log of a response in
// the dialect.
func (h *Handler) emits(dialect string, kind provider.Kind) bool {
	if dialect != emit.DialectText {
		return true
	}
	switch kind {
	case provider.Reasoning:
		return h.reasoning
	case provider.ToolCall:
		return h.toolCalls
	default:
		return true
	}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !generates(r) {
		return next.ServeHTTP(w, r)
	}
	dialect, err := h.dialect(r)
	if err != nil {
		refuse(w, emit.DialectText, err, "")
		return nil
	}
	if dialect != emit.DialectPassthrough && isOwnEventID(r) {
		refuse(w, dialect, &provider.Error{
			Code: codeExpiredResponse, Status: http.StatusGone,
			Message: "this response can not be continued",
		}, "")
		return nil
	}
	return h.serveAttached(w, r, next, dialect)
}

// dialect returns the dialect that the client of a request gets.
func (h *Handler) dialect(r *http.Request) (string, *provider.Error) {
	name := h.Emit
	if strings.Contains(name, "{") {
		repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		name = repl.ReplaceAll(name, "")
	}
	if !knownDialect(name) {
		return "", &provider.Error{
			Code: codeUnknownDialect, Status: http.StatusBadRequest,
			Message: fmt.Sprintf("unknown dialect %q", name),
		}
	}
	if name == "" {
		name = emit.DialectText
	}
	return name, nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
