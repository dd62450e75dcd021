package llmstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
	"github.com/caddy-llmstream/caddy-llmstream/internal/upstream"
)

func init() { caddy.RegisterModule(new(Transport)) }

// Transport is Caddy's HTTP transport, and gives a token stream to reverse_proxy
// only when the model has put something out. A backend that says nothing within
// `first_token`, ends before its first output, or begins with an error has failed
// like one that cannot be reached: with `lb_retries` or `lb_try_duration` the next
// one is asked, and `fail_duration` and `max_fails` count it. Nothing of it has
// been sent to the client by then.
//
// Request bodies of at most 1 MiB are held so that they can be sent again; a
// longer one is, where no backend has read more than that of it, as after a refused
// connection. `lb_retry_match`, where it is set, decides what is tried again;
// without it, every request that asks for a stream is.
//
// Responses that are not token streams pass as they come.
type Transport struct {
	*reverseproxy.HTTPTransport

	// How long the model may take to put something out, where the request asks for
	// a stream. Default: no limit; that of llm_stream covers all attempts.
	FirstToken caddy.Duration `json:"first_token,omitempty"`

	matched bool // lb_retry_match decides
	logger  *zap.Logger
	metrics *observe.UpstreamMetrics
}

// CaddyModule returns the Caddy module information.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.llm_stream",
		New: func() caddy.Module { return &Transport{HTTPTransport: new(reverseproxy.HTTPTransport)} },
	}
}

// Provision sets up the transport.
func (t *Transport) Provision(ctx caddy.Context) error {
	t.logger = ctx.Logger()
	for _, module := range slices.Backward(ctx.Modules()) {
		if proxy, ok := module.(*reverseproxy.Handler); ok {
			t.matched = proxy.LoadBalancing != nil && len(proxy.LoadBalancing.RetryMatchRaw) > 0
			break
		}
	}
	t.metrics = process.upstreamMetrics()
	if err := t.metrics.Register(ctx.GetMetricsRegistry()); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return t.HTTPTransport.Provision(ctx)
}

// attemptsKey is where a request keeps what it has tried. What is below the proxy
// has no other place that outlives one attempt.
const attemptsKey = "http.llm_stream.transport"

// attemptsOf returns what is remembered of a request; a new one where nothing is.
func attemptsOf(repl *caddy.Replacer) *upstream.Attempts {
	if v, ok := repl.Get(attemptsKey); ok {
		if a, ok := v.(*upstream.Attempts); ok {
			return a
		}
	}
	a := new(upstream.Attempts)
	repl.Set(attemptsKey, a)
	return a
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	repl, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok || !generates(req) {
		return t.HTTPTransport.RoundTrip(req) // a health check, or no generation
	}
	attempts := attemptsOf(repl)
	again, err := attempts.Begin(req)
	repl.Set("http.llm_stream.attempts", attempts.Number())
	if err != nil {
		return nil, err
	}
	call := upstream.Call{
		RoundTrip: t.HTTPTransport.RoundTrip, FirstToken: orDefault(t.FirstToken, 0),
		Asks: relay.AsksForStream(req, req.URL.Path, attempts.Body()),
	}
	resp, err := call.Do(again)
	if call.Asks {
		t.metrics.Attempt(resultOf(err))
	}
	var unanswered *upstream.UnansweredError
	if !errors.As(err, &unanswered) {
		return resp, err
	}
	t.logger.Warn("a backend has not begun to answer", zap.String("upstream", req.URL.Host),
		zap.Int("attempt", attempts.Number()), zap.String("code", string(unanswered.Code)), zap.Error(unanswered.Unwrap()))
	return nil, &attemptError{unanswered, !t.matched && attempts.Replayable()}
}

// resultOf returns what came of an attempt, as the metric names it.
func resultOf(err error) string {
	var unanswered *upstream.UnansweredError
	switch {
	case err == nil:
		return "answered"
	case errors.As(err, &unanswered):
		return string(unanswered.Code)
	default:
		return "unreachable"
	}
}

// attemptError is an attempt that reverse_proxy may make again elsewhere. It takes
// that for granted of a connection that could not be made, which is what this one
// says it is where nothing else decides.
type attemptError struct {
	*upstream.UnansweredError
	again bool
}

// As implements the interface that errors.As looks for.
func (e *attemptError) As(target any) bool {
	dial, ok := target.(*reverseproxy.DialError)
	if !ok || !e.again {
		return false
	}
	*dial = reverseproxy.NewDialError(e.UnansweredError)
	return true
}

// Unwrap returns the error itself.
func (e *attemptError) Unwrap() error { return e.UnansweredError }

// answering is the next handler, whose last backend may have said why it does not
// answer: then that is the answer.
type answering struct{ caddyhttp.Handler }

// ServeHTTP implements caddyhttp.Handler.
func (a answering) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	err := a.Handler.ServeHTTP(w, r)
	var unanswered *upstream.UnansweredError
	if !errors.As(err, &unanswered) || unanswered.Status == 0 {
		return err
	}
	for _, field := range []string{"Content-Type", "Retry-After"} {
		if value := unanswered.Header.Get(field); value != "" {
			w.Header().Set(field, value)
		}
	}
	w.WriteHeader(unanswered.Status)
	_, err = w.Write(unanswered.Body)
	return err
}

// UnmarshalCaddyfile reads the options: those of the transport `http`, and
//
//	transport llm_stream {
//	    first_token <duration>
//	}
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // its name
	rest := []caddyfile.Token{d.Token()}
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "first_token" {
			if len(rest) == 1 {
				brace := d.Token()
				brace.Text, brace.Line = "{", rest[0].Line
				rest = append(rest, brace)
			}
			rest = append(rest, d.NextSegment()...)
			continue
		}
		if err := unmarshalTimeout(d, &t.FirstToken); err != nil {
			return err
		}
	}
	if len(rest) > 1 {
		brace := rest[len(rest)-1]
		brace.Text, brace.Line = "}", brace.Line+1
		rest = append(rest, brace)
	}
	return t.HTTPTransport.UnmarshalCaddyfile(caddyfile.NewDispenser(rest))
}

// Interface guards
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddyfile.Unmarshaler                            = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
)
