package llmsim

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The defaults of Handler: what a small model on a desktop is like.
const (
	defaultTokens   = 200
	defaultInterval = 40 * time.Millisecond
	defaultTTFT     = 200 * time.Millisecond
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler is a simulated LLM backend: it answers `/v1/chat/completions` like
// OpenAI, `/v1/messages` like Anthropic, and `/api/chat` and `/api/generate` like
// Ollama, with a text that does not depend on the request. With `server` set to
// `ollama` it answers all of them, and `/v1/completions` and `/v1/responses`, in
// the way of Ollama. `/v1/models`,
// `/health` and `/stats` (how many responses were started, finished, cancelled)
// answer too; anything else is 404.
//
// The request headers `X-Sim-Tokens`, `X-Sim-Interval`, `X-Sim-TTFT`,
// `X-Sim-Reasoning`, `X-Sim-Fault`, `X-Sim-Fault-At`, `X-Sim-Status` and
// `X-Sim-Server` override the configuration for one request. It is for demos and tests, not for public
// sites.
type Handler struct {
	// How many tokens an answer has, 0 to 1000000. The default is 200.
	Tokens *int `json:"tokens,omitempty"`

	// The time from one token to the next; 0 for no pause. The default is 40ms.
	Interval *caddy.Duration `json:"interval,omitempty"`

	// The time to the first token. The default is 200ms.
	TTFT *caddy.Duration `json:"ttft,omitempty"`

	// How many tokens of reasoning precede the answer, 0 to 1000000. The default
	// is 0.
	Reasoning int `json:"reasoning,omitempty"`

	// What goes wrong: `die`, `end`, `hang`, `error`, `error-done`, `crash`,
	// `malformed`, `status`, `no-done` or `slow-headers`. The default is nothing.
	Fault Fault `json:"fault,omitempty"`

	// The token at which it goes wrong, from 0, for the first seven faults. The
	// default is 0.
	FaultAt int `json:"fault_at,omitempty"`

	// The HTTP status of the fault `status`, 400 to 599. The default is 503.
	Status int `json:"status,omitempty"`

	// Whose ways the APIs have: `ollama`, or by default each those of its own
	// provider.
	Server Server `json:"server,omitempty"`

	backend *Backend
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llmsim",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets up the backend.
func (h *Handler) Provision(caddy.Context) error {
	h.backend = &Backend{Options: h.options()}
	return nil
}

// options returns the configuration with its defaults.
func (h *Handler) options() Options {
	options := Options{
		Tokens:    defaultTokens,
		Interval:  defaultInterval,
		TTFT:      defaultTTFT,
		Reasoning: h.Reasoning,
		Fault:     h.Fault,
		FaultAt:   h.FaultAt,
		Status:    h.Status,
		Server:    h.Server,
	}
	if h.Tokens != nil {
		options.Tokens = *h.Tokens
	}
	if h.Interval != nil {
		options.Interval = time.Duration(*h.Interval)
	}
	if h.TTFT != nil {
		options.TTFT = time.Duration(*h.TTFT)
	}
	return options
}

// Validate makes sure that the options are within their bounds.
func (h *Handler) Validate() error { return h.backend.Options.Validate() }

// ServeHTTP implements caddyhttp.MiddlewareHandler. It answers every request, so
// the next handler is never called.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	h.backend.ServeHTTP(w, r)
	return nil
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
