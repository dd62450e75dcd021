// Package llmstream is a Caddy HTTP handler that reads the token streams of LLM
// backends on their way to the client.
//
// A response that is a token stream is decoded into a log of text deltas, and
// every client is written the part of the log that it has not had yet. All
// other responses pass through untouched.
package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
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

	// How long things may take.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// After how much silence towards a client it is sent a comment, so that
	// nobody on the way takes the connection for dead. Before the upstream's
	// header it commits the response with status 200, where the request asks
	// for a stream. Negative switches it off. Default: 15s.
	Heartbeat caddy.Duration `json:"heartbeat,omitempty"`

	// How many events a client may lag behind the model (and at most 256 KiB,
	// or one event) before it counts as slow. A client that replays what came
	// earlier does not lag, and for drop and disconnect one is slow only if its
	// connection has held a write up for 50 ms. Default: 64.
	Buffer int `json:"buffer,omitempty"`

	// What is done about a slow client. `block` reads the upstream no further
	// until it has caught up; only without resume, where it is the default.
	// `coalesce` sends what it has missed as one delta; only with resume,
	// where it is the default. `drop` leaves out what it has missed and says
	// so with an event `gap`; only with emit `text`. `disconnect` ends its
	// connection, with resume after a reconnect event.
	SlowClient string `json:"slow_client,omitempty"`

	// Keeps responses, so that they can be resumed, followed and cancelled.
	// Default: a response belongs to the client who asked for it.
	Resume *Resume `json:"resume,omitempty"`

	// How clients are treated when the configuration is replaced and when the
	// process exits.
	Drain *Drain `json:"drain,omitempty"`

	logger       *zap.Logger
	app          *App
	admission    *admission
	drain        *drainer
	reasoning    bool
	toolCalls    bool
	limits       timeouts.Limits
	heartbeat    time.Duration
	writeTimeout time.Duration
	pace         pace
}

// defaultBuffer is how many events a client may lag.
const defaultBuffer = 64

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
	h.reasoning = slices.Contains(h.Include, includeReasoning)
	h.toolCalls = slices.Contains(h.Include, includeToolCalls)
	if h.MaxEvent == 0 {
		h.MaxEvent = defaultMaxEvent
	}
	if h.Buffer == 0 {
		h.Buffer = defaultBuffer
	}
	if h.Timeouts == nil {
		h.Timeouts = new(Timeouts)
	}
	h.limits = h.Timeouts.limits()
	h.heartbeat = orDefault(h.Heartbeat, defaultHeartbeat)
	h.writeTimeout = orDefault(h.Timeouts.Write, defaultWriteTimeout)
	h.pace = pace{policy: h.SlowClient, events: h.Buffer}
	if h.Resume != nil {
		h.Resume.provision()
		h.pace.resumable = true
	}
	if h.Drain == nil {
		h.Drain = new(Drain)
	}
	if h.pace.policy == "" {
		h.pace.policy = slowBlock
		if h.Resume != nil {
			h.pace.policy = slowCoalesce
		}
	}
}

// Provision sets up the handler.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	h.applyDefaults()
	app, err := ctx.App("llm_stream")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	if h.MaxStreams != nil {
		if h.admission, err = newAdmission(ctx, h.app, h.MaxStreams); err != nil {
			return err
		}
	}
	h.drain = newDrainer(ctx, h.app, h.Drain)
	return nil
}

// Cleanup releases what the handler shares with others.
func (h *Handler) Cleanup() error {
	if h.drain != nil {
		h.drain.cleanup()
	}
	if h.admission == nil || h.admission.limiter == nil {
		return nil
	}
	return h.admission.release()
}

// Validate makes sure that the configuration can work.
func (h *Handler) Validate() error {
	if !hasPlaceholder(h.Emit) && !knownDialect(h.Emit) {
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
	if h.Buffer < 1 {
		return fmt.Errorf("buffer: must be at least 1 event, not %d", h.Buffer)
	}
	if err := h.Timeouts.validate(); err != nil {
		return err
	}
	if err := h.Drain.validate(); err != nil {
		return err
	}
	if h.MaxStreams != nil {
		if err := h.MaxStreams.validate(); err != nil {
			return err
		}
	}
	if h.Resume != nil {
		if err := h.Resume.validate(); err != nil {
			return err
		}
		config := h.Drain.config()
		if away := config.Spread + 2*config.Retry; time.Duration(h.Resume.Grace) <= away {
			return fmt.Errorf("grace: must be longer than drain spread + 2 × retry (%v), in which clients come back, not %v",
				away, time.Duration(h.Resume.Grace))
		}
	}
	return h.validateSlowClient()
}

func (h *Handler) validateSlowClient() error {
	switch h.pace.policy {
	case slowBlock:
		if h.Resume != nil {
			return errors.New("slow_client: block would let one client delay others; it can not be used with resume")
		}
	case slowCoalesce:
		if h.Resume == nil {
			return errors.New("slow_client: coalesce needs a log that is kept; it can be used only with resume")
		}
	case slowDrop:
		if h.Emit != "" && h.Emit != emit.DialectText && !hasPlaceholder(h.Emit) {
			return fmt.Errorf("slow_client: drop can not be used with emit %s, which has no way to tell of a gap", h.Emit)
		}
	case slowDisconnect:
	default:
		return fmt.Errorf("slow_client: unknown policy %q; must be block, coalesce, drop or disconnect", h.pace.policy)
	}
	return nil
}

// dialects are the values of emit.
var dialects = append(emit.Dialects(), emit.DialectPassthrough)

func knownDialect(name string) bool {
	return name == "" || slices.Contains(dialects, name)
}

// maxEvent is max_event for the packages that count in int.
func (h *Handler) maxEvent() int { return int(h.MaxEvent) }

// emits reports whether output of a kind goes into the log of a response in
// the dialect.
func (h *Handler) emits(dialect string, kind event.Kind) bool {
	switch dialect {
	case emit.DialectText:
	case emit.DialectPlain:
		return kind == event.Text || kind == event.Refusal
	default:
		return true
	}
	switch kind {
	case event.Reasoning:
		return h.reasoning
	case event.ToolCall:
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
	return h.admitted(w, r, func() error { return h.serve(w, r, next) })
}

// admitted serves a client who stays, where there are not too many already.
func (h *Handler) admitted(w http.ResponseWriter, r *http.Request, serve func() error) error {
	return h.undrained(w, r, func() error {
		if !h.app.enter() {
			return refuseWith(w, r, emit.DialectText, errTooManyClients)
		}
		defer h.app.leave()
		return serve()
	})
}

// undrained serves a request unless the process goes down, and lets that wait
// for it.
func (h *Handler) undrained(w http.ResponseWriter, r *http.Request, serve func() error) error {
	if h.drain.Reason() == drain.Exit {
		return refuseWith(w, r, emit.DialectText, h.drain.turnAway())
	}
	defer h.drain.open(w, r)()
	return serve()
}

// serve answers a request that can start a generation.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	dialect, err := h.dialect(r)
	if err != nil {
		refuse(w, emit.DialectText, err, "")
		return nil
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if h.Resume != nil && dialect != emit.DialectPassthrough {
		if as, ok := h.Resume.access(repl); ok {
			return h.serveResumable(w, r, next, dialect, as)
		}
	}
	if dialect != emit.DialectPassthrough && isOwnEventID(r) {
		gone := fanout.ErrExpired
		if h.Resume != nil {
			gone = fanout.ErrUnknown // to nobody nothing belongs
		}
		refuse(w, dialect, refusal(gone), "")
		return nil
	}
	h.admission.prepareToWait(r)
	leave, admitErr := h.admission.enter(r.Context(), repl)
	if admitErr != nil {
		return refuseWith(w, r, dialect, admitErr)
	}
	defer leave()
	if dialect != emit.DialectPassthrough && (h.pace.policy == slowDrop || h.pace.policy == slowDisconnect) {
		return h.serveTied(w, r, next, dialect)
	}
	return h.serveAttached(w, r, next, dialect)
}

// dialect returns the dialect that the client of a request gets.
func (h *Handler) dialect(r *http.Request) (string, *event.Error) {
	name := h.Emit
	if hasPlaceholder(name) {
		repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		name = repl.ReplaceAll(name, "")
	}
	if !knownDialect(name) {
		return "", &event.Error{
			Code: codeUnknownDialect, Status: http.StatusBadRequest,
			Message: fmt.Sprintf("unknown dialect %q", name),
		}
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
