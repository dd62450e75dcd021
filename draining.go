package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/quic-go/quic-go/http3"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
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
			return fmt.Errorf("%s: must be longer than 0, not %v", name, time.Duration(value))
		}
	}
	if d.OnReload != "" && d.OnReload != onReloadReconnect && d.OnReload != onReloadOff {
		return fmt.Errorf("on_reload: must be %s or %s, not %q", onReloadReconnect, onReloadOff, d.OnReload)
	}
	return nil
}

func (d *Drain) config() drain.Config {
	return drain.Config{
		Spread: orDefault(d.Spread, defaultSpread),
		Retry:  orDefault(d.Retry, defaultRetry),
	}
}

// errDraining is the cause with which an upstream is cancelled at the deadline
// of the exit.
var errDraining = errors.New("the server is shutting down")

// drained is the terminal event of a response that the deadline has ended.
var drained = &event.Event{Kind: event.Failed, Err: &event.Error{
	Code: event.CodeDraining, Status: http.StatusServiceUnavailable, Message: errDraining.Error(),
}}

// drainer drains the clients of one handler.
type drainer struct {
	*drain.Group
	app      *App
	deadline time.Duration
	reload   bool // clients are sent away when the configuration is replaced

	// who takes the clients over at a reload: see succeeds
	generation  uint64
	listen      []string
	prefix      string // of the control endpoints; empty for a handler of requests
	place       string
	resumes     bool
	superseding sync.Once // decides what becomes of the clients

	superseded atomic.Bool // its configuration is no longer the running one
}

// generations counts the drainers: the handlers of a later configuration have
// a higher number.
var generations atomic.Uint64

// newDrainer sets up the draining of a handler. The server's shutdown begins it
// at a reload and at exit, before Caddy waits for open requests.
func newDrainer(ctx caddy.Context, app *App, d *Drain) *drainer {
	dr := &drainer{
		Group: drain.New(d.config()), app: app,
		deadline: orDefault(d.Deadline, defaultDeadline), reload: d.OnReload != onReloadOff,
		generation: generations.Add(1),
	}
	switch module := ctx.Module().(type) {
	case *Handler:
		if dr.resumes = module.Resume != nil; dr.resumes {
			dr.place = module.Resume.Place
		}
	case *Control:
		dr.resumes, dr.prefix, dr.place = true, module.Resume.Prefix, module.Resume.Place
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		dr.listen = server.Listen
		server.RegisterOnShutdown(dr.begin)
		server.RegisterConnContext(withConn)
	}
	everyone.add(dr)
	return dr
}

// begin drains as the situation demands.
func (dr *drainer) begin() {
	if caddy.Exiting() {
		everyone.exit(dr.app.exitLimit())
		return
	}
	dr.superseding.Do(func() {
		switch {
		case !dr.reload:
		case everyone.haveSuccessors(dr):
			dr.Reload(drain.OnReload)
		default:
			// Who reads a response may do so to its end. A channel has none, and
			// who follows it has to learn that it is no longer there.
			dr.Reload(drain.Always)
		}
	})
}

// succeeds reports whether the clients of another handler may find their
// responses here when they come back.
func (dr *drainer) succeeds(other *drainer) bool {
	return dr.generation > other.generation && dr.app != other.app && !dr.superseded.Load() && dr.resembles(other)
}

// resembles reports whether requests are told apart from those of another
// handler by nothing that is known here.
func (dr *drainer) resembles(other *drainer) bool {
	return dr.resumes && dr.prefix == other.prefix && dr.place == other.place &&
		slices.ContainsFunc(other.listen, func(addr string) bool { return slices.Contains(dr.listen, addr) })
}

// cleanup is for the end of the configuration. Clients may be there for long.
func (dr *drainer) cleanup() {
	dr.begin()
	dr.superseded.Store(true)
	everyone.add(dr)
}

// exitLimit returns how long the exit may take by Caddy's grace_period; 0 where
// there is none.
func (a *App) exitLimit() time.Duration { return limitOf(a.grace) }

func limitOf(grace time.Duration) time.Duration {
	if grace <= 0 {
		return 0
	}
	return max(grace-graceMargin, grace/2)
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// withConn notes the connection, below TLS: to close that with a farewell, one
// might have to wait.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if _, known := ctx.Value(connKey{}).(net.Conn); known {
		return ctx
	}
	if tlsConn, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tlsConn.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// open makes a request one of those that the exit waits for and ends, from its
// beginning, also while it sends its body or waits for a place. It returns
// what is to be called at its end.
func (dr *drainer) open(w http.ResponseWriter, r *http.Request) (done func()) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	cut := cutOff(w)
	if conn != nil {
		cut = func() { _ = conn.Close() }
	}
	m := dr.joined(drain.Never, nil, cut)
	return func() {
		m.Leave()
		if deadline, exits := everyone.deadline(dr); exits {
			release(r, conn, max(0, time.Until(deadline)))
		}
	}
}

// release sees to it that the connection of a request which has ended does not
// keep a process that exits. left is the time to the deadline.
func release(r *http.Request, conn net.Conn, left time.Duration) {
	http3Server, _ := r.Context().Value(http3.ServerContextKey).(*http3.Server)
	switch {
	case http3Server != nil:
		// it waits for its clients to close their connections, without end, and
		// can only close all of them
		time.AfterFunc(left+drain.CutAfter, func() { _ = http3Server.Close() })
	case conn != nil && (r.ProtoMajor == 1 || left == 0):
		// net/http may wait for the rest of a request body, and HTTP/2 for
		// a client to close an idle connection
		_ = conn.SetDeadline(time.Now().Add(drain.CutAfter))
	}
}

// cutOff returns what frees a goroutine that waits for a client, where the
// connection is not known, as on HTTP/3. It goes to the innermost writer:
// those around it are not made to be used from another goroutine.
func cutOff(w http.ResponseWriter) func() {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = inner.Unwrap()
	}
	rc := http.NewResponseController(w)
	return func() {
		_ = rc.SetReadDeadline(time.Unix(1, 0))
		_ = rc.SetWriteDeadline(time.Unix(1, 0))
	}
}

// turnAway is the answer to a request that comes while the process goes down.
func (dr *drainer) turnAway() error {
	return &turnedAwayError{
		answer: &event.Error{
			Code: event.CodeDraining, Status: http.StatusServiceUnavailable, Message: errDraining.Error(),
		},
		retryAfter: dr.Retry(),
		reason:     string(drain.Exit),
	}
}

// joined is Join for a handler whose configuration may be superseded.
func (dr *drainer) joined(returning drain.Returning, end, cut func()) *drain.Member {
	m := dr.Join(returning, end, cut)
	if dr.superseded.Load() { // else it is in everyone as long as it has clients
		everyone.add(dr)
	}
	return m
}

// join makes a client one of those who are drained together. At the deadline
// end has to end what the client reads.
func (h *Handler) join(c *client, returning drain.Returning, end func()) *drain.Member {
	c.member = h.drain.joined(returning, end, nil)
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
