// Package llmstream is a Caddy HTTP handler that reads the token streams of LLM
// backends on their way to the client.
//
// A response that is a token stream is decoded into a log of text deltas, and
// every client is written the part of the log that it has not had yet. All
// other responses pass untouched.
//
// This package is what only Caddy knows: the configuration, the control
// endpoints, reload and exit. What happens to a response is in internal/relay
// and below.
package llmstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler reads the token streams that the next handlers answer with, usually
// reverse_proxy in front of an LLM backend, and re-emits them as text deltas.
// The wire format of the backend is recognized from the response. Responses
// that are not token streams pass untouched.
//
// Headers are committed with the first frame, so that a failure before it is
// an HTTP status and not a broken stream.
type Handler struct {
	// The dialect that clients get: `text` (server-sent events with text
	// deltas), `plain` (the text alone), `openai` (chat.completion.chunk),
	// `anthropic` (message events), `ai-sdk` (the UI message stream of Vercel's
	// AI SDK) or `passthrough` (the backend's own bytes). May be a placeholder;
	// an empty value is `text`, and an unknown one is answered with 400.
	// Default: `text`.
	Emit string `json:"emit,omitempty"`

	// What the dialect `text` carries besides text: `reasoning`, `tool_calls`.
	// Refusals, usage and finish reason are always there. Default: nothing.
	Include []string `json:"include,omitempty"`

	// The longest single event of an upstream stream, in bytes. A longer one
	// that carries output ends the response with the error event_too_large; one
	// that carries nothing we emit is read past. Default: 16 MiB.
	MaxEvent int64 `json:"max_event,omitempty"`

	// How many generations may run at a time. Default: no bound.
	MaxStreams *MaxStreams `json:"max_streams,omitempty"`

	Delivery

	admission *admission
	warnings  *emitWarnings
}

// The values of include.
const (
	includeReasoning = "reasoning"
	includeToolCalls = "tool_calls"
)

const defaultMaxEvent = 16 << 20

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_stream",
		New: func() caddy.Module { return new(Handler) },
	}
}

// applyDefaults sets what was left out.
func (h *Handler) applyDefaults() {
	if h.MaxEvent == 0 {
		h.MaxEvent = defaultMaxEvent
	}
	h.Delivery.applyDefaults()
}

// Provision sets up the handler.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.applyDefaults()
	h.warnings = newEmitWarnings()
	if err := h.Delivery.provision(ctx, ""); err != nil {
		return err
	}
	h.route.MaxEvent = int(h.MaxEvent)
	h.route.Reasoning = slices.Contains(h.Include, includeReasoning)
	h.route.ToolCalls = slices.Contains(h.Include, includeToolCalls)
	if h.MaxStreams == nil {
		return nil
	}
	var err error
	h.admission, err = newAdmission(ctx, h.app, h.MaxStreams)
	return err
}

// Cleanup releases what the handler shares with others.
func (h *Handler) Cleanup() error {
	h.Delivery.cleanup()
	if h.admission == nil || h.admission.limiter == nil {
		return nil
	}
	return h.admission.release()
}

// Validate makes sure that the configuration can work.
func (h *Handler) Validate() error {
	if !hasPlaceholder(h.Emit) && !isDialect(h.Emit) {
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
	if h.MaxEvent < 1 || h.MaxEvent > maxHeldSize {
		return fmt.Errorf("max_event: must be from 1 byte to 1 GiB, not %d", h.MaxEvent)
	}
	if h.MaxStreams != nil {
		if err := h.MaxStreams.validate(); err != nil {
			return err
		}
	}
	if err := h.Delivery.validate(); err != nil {
		return err
	}
	if h.pace.Policy == deliver.SlowDrop && h.Emit != "" && h.Emit != emit.DialectText && !hasPlaceholder(h.Emit) {
		return fmt.Errorf("slow_client: drop cannot be used with emit %s, which has no way to tell of a gap", h.Emit)
	}
	return nil
}

// dialects are the values of emit.
var dialects = append(emit.Dialects(), emit.DialectPassthrough)

func isDialect(name string) bool {
	return name == "" || slices.Contains(dialects, name)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !generates(r) {
		return next.ServeHTTP(w, r)
	}
	err := h.counted(w, r, func() error { return h.serve(w, r, next) })
	if errors.Is(err, relay.ErrBody) {
		return caddyhttp.Error(http.StatusBadRequest, err) // unless a handler before us has a status for it
	}
	return err
}

// serve answers a request that can start a generation.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	dialect, err := h.dialect(r)
	if err != nil {
		return h.route.Refuse(w, r, emit.DialectText, err)
	}
	if dialect == emit.DialectText {
		defer func() {
			if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") && w.Header().Get("X-Response-Id") != "" {
				h.warnings.answered(r, h.route.Logger)
			}
		}()
	}
	q := h.newRequest(w, r, next, dialect)
	q.Admit = h.admission.enter(r)
	if dialect == emit.DialectPassthrough {
		return h.route.Bound(q)
	}
	if h.Resume != nil {
		if as, ok := h.Resume.access(replacerOf(r)); ok {
			return h.serveResumable(q, as)
		}
	}
	if isOwnEventID(r.Header.Get("Last-Event-ID")) {
		gone := fanout.ErrExpired
		if h.Resume != nil {
			gone = fanout.ErrUnknown // a request without an owner owns nothing
		}
		return h.route.Refuse(w, r, dialect, relay.RefusalOf(gone))
	}
	return h.route.Bound(q)
}

// serveResumable answers a request of a route with resume: with the response
// that it comes back to, or that of its idempotency key, or a new one.
func (h *Handler) serveResumable(q *relay.Request, as fanout.Access) error {
	body, err := h.route.ReadBody(q, h.Resume.MaxBody)
	if err != nil {
		return h.route.Refuse(q.W, q.Request, q.Dialect, err)
	}
	if eventID := q.Header.Get("Last-Event-ID"); eventID != "" {
		q.DropBody()
		return h.route.Resume(q, as, eventID)
	}
	return h.route.Resumable(q, h.Resume.spec(q, as, body))
}

// dialect returns the dialect that the client of a request gets.
func (h *Handler) dialect(r *http.Request) (string, error) {
	name := h.Emit
	if hasPlaceholder(name) {
		name = replacerOf(r).ReplaceAll(name, "")
	}
	if !isDialect(name) {
		return "", &deliver.RefusalError{Answer: &event.Error{
			Code: event.CodeUnknownDialect, Status: http.StatusBadRequest,
			Message: fmt.Sprintf("unknown dialect %q", name),
		}}
	}
	switch {
	case name == "":
		name = emit.DialectText
	case name == emit.DialectOpenAI && provider.IsOtherOpenAI(originalPath(r)):
		name = emit.DialectPassthrough
	}
	return name, nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
