package llmstream

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/emit"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// Drain says how open clients are treated when the configuration is replaced
// and when the process exits.
type Drain struct {
	// How long responses may go on after the exit has begun; then the rest is
	// ended with an error. Caddy's grace_period, where it is shorter, counts.
	// Default: 30s.
	Deadline caddy.Duration `json:"deadline,omitempty"`

	// The time over which clients who can come back are told to reconnect, so
	// that not all come at once. Default: 5s.
	Spread caddy.Duration `json:"spread,omitempty"`

	// About how long a client waits before it comes back. Default: 2s.
	Retry caddy.Duration `json:"retry,omitempty"`

	// What happens when the configuration is replaced: `reconnect` tells
	// clients of resumable responses to come back, to the new configuration;
	// with `off` they stay on the old one until they end. Default:
	// `reconnect`.
	OnReload string `json:"on_reload,omitempty"`
}

// The defaults of Drain.
const (
	defaultDeadline = 30 * time.Second
	defaultSpread   = 5 * time.Second
	defaultRetry    = 2 * time.Second
)

// The values of on_reload.
const (
	onReloadReconnect = "reconnect"
	onReloadOff       = "off"
)

// graceMargin is how much sooner than Caddy's grace_period the drain deadline
// is, so that every stream has had its end before Caddy cuts it.
const graceMargin = time.Second

func (d *Drain) validate() error {
	for name, value := range map[string]caddy.Duration{"deadline": d.Deadline, "spread": d.Spread, "retry": d.Retry} {
		if value < 0 {
			return fmt.Errorf("drain: %s must be longer than 0, not %v", name, time.Duration(value))
		}
	}
	if d.OnReload != "" && d.OnReload != onReloadReconnect && d.OnReload != onReloadOff {
		return fmt.Errorf("drain: on_reload must be %s or %s, not %q", onReloadReconnect, onReloadOff, d.OnReload)
	}
	return nil
}

func (d *Drain) config() drain.Config {
	return drain.Config{
		Deadline: orDefault(d.Deadline, defaultDeadline),
		Spread:   orDefault(d.Spread, defaultSpread),
		Retry:    orDefault(d.Retry, defaultRetry),
	}
}

// errDraining is the cause with which an upstream is cancelled at the deadline
// of the exit.
var errDraining = errors.New("the server is shutting down")

// drained is the terminal event of a response that the deadline has ended.
var drained = &provider.Event{Kind: provider.Failed, Err: &provider.Error{
	Code: provider.CodeDraining, Status: http.StatusServiceUnavailable, Message: errDraining.Error(),
}}

// drainer drains the clients of one handler.
type drainer struct {
	*drain.Group
	app    *App
	reload bool // clients are sent away when the configuration is replaced
}

// drainers are those of every configuration that has clients, superseded ones
// included: all of them drain when the process exits.
var drainers = struct {
	sync.Mutex
	set map[*drainer]struct{}
}{set: make(map[*drainer]struct{})}

// newDrainer sets up the draining of a handler. The server's shutdown begins it
// at a reload and at exit, before Caddy waits for open requests.
func newDrainer(ctx caddy.Context, app *App, d *Drain) *drainer {
	dr := &drainer{Group: drain.New(d.config()), app: app, reload: d.OnReload != onReloadOff}
	drainers.Lock()
	drainers.set[dr] = struct{}{}
	drainers.Unlock()
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(dr.begin)
	}
	return dr
}

// begin drains as the situation demands.
func (dr *drainer) begin() {
	switch {
	case caddy.Exiting():
		exitAll()
	case dr.reload:
		dr.Reload()
	}
}

// exitAll drains everything, because the process exits.
func exitAll() {
	limits.Range(func(_, v any) bool {
		v.(pooledLimiter).Drain()
		return true
	})
	drainers.Lock()
	defer drainers.Unlock()
	for dr := range drainers.set {
		dr.Exit(dr.app.exitLimit())
	}
}

// cleanup is for the end of the configuration. Where it still has clients, the
// exit is watched for: nothing tells a superseded configuration of it.
func (dr *drainer) cleanup() {
	dr.begin()
	empty := dr.Empty()
	select {
	case <-empty:
		dr.forget()
	default:
		go dr.watchExit(empty)
	}
}

func (dr *drainer) forget() {
	drainers.Lock()
	defer drainers.Unlock()
	delete(drainers.set, dr)
}

// exitPoll is how often a superseded configuration looks whether the process
// exits.
const exitPoll = 200 * time.Millisecond

// watchExit drains a superseded configuration when the process exits. It ends
// with the last client.
func (dr *drainer) watchExit(empty <-chan struct{}) {
	defer dr.forget()
	ticker := time.NewTicker(exitPoll)
	defer ticker.Stop()
	for {
		select {
		case <-empty:
			return
		case <-ticker.C:
			if caddy.Exiting() {
				exitAll()
				<-empty
				return
			}
		}
	}
}

// exitLimit returns how long the exit may take by Caddy's grace_period; 0 where
// there is none.
func (a *App) exitLimit() time.Duration {
	if a.grace <= 0 {
		return 0
	}
	return max(a.grace-graceMargin, a.grace/2)
}

// cutOff returns what frees a goroutine that waits for a client to take what
// it writes. It goes to the innermost writer: those around it are not made to
// be used from another goroutine, and this one is on all protocols.
func cutOff(w http.ResponseWriter) func() {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = inner.Unwrap()
	}
	deadliner, ok := w.(interface{ SetWriteDeadline(t time.Time) error })
	if !ok {
		return func() {}
	}
	return func() { _ = deadliner.SetWriteDeadline(time.Unix(1, 0)) }
}

// turnAway is the answer to a request that comes while the process goes down.
func (dr *drainer) turnAway() error {
	return &turnedAway{
		answer: &provider.Error{
			Code: provider.CodeDraining, Status: http.StatusServiceUnavailable, Message: errDraining.Error(),
		},
		retryAfter: dr.Retry(),
		reason:     string(drain.Exit),
	}
}

// join makes a client one of those who are drained together. At the deadline
// end has to end what the client reads.
func (h *Handler) join(c *client, returning drain.Returning, end func()) *drain.Member {
	c.member = h.drain.Join(returning, end, cutOff(c.w))
	return c.member
}

// joinResponse is join for a reader of a response that outlives its clients.
func (h *Handler) joinResponse(c *client, response *fanout.Response) *drain.Member {
	returning := drain.Never
	if c.dialect == emit.DialectText {
		returning = drain.OnReload
	}
	return h.join(c, returning, func() {
		response.End(drained)
		response.Cancel(errDraining)
	})
}
