package llmstream

import (
	"context"
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
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// drainer drains the clients of one handler, when its configuration is replaced
// and when the process exits.
type drainer struct {
	*drain.Group
	app      *App
	deadline time.Duration
	reload   bool // clients are sent away when the configuration is replaced

	// what tells which handler takes the clients over at a reload: see succeeds
	generation  uint64
	listen      []string
	prefix      string // of the control endpoints; empty for a handler of requests
	place       string
	resumes     bool
	superseding sync.Once // decides what becomes of the clients

	superseded atomic.Bool // its configuration is no longer the running one
}

// newDrainer sets up the draining of a handler. The server's shutdown begins it
// at a reload and at exit, before Caddy waits for open requests.
func newDrainer(ctx caddy.Context, app *App, d *Drain) *drainer {
	dr := &drainer{
		Group: drain.New(d.config()), app: app,
		deadline: orDefault(d.Deadline, defaultDeadline), reload: d.OnReload != onReloadOff,
		generation: process.drainers.generations.Add(1),
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		dr.listen = server.Listen
		server.RegisterOnShutdown(dr.begin)
		server.RegisterConnContext(withConn)
	}
	return dr
}

// begin drains, at a reload or at exit. At a reload, clients that can come back
// are sent away where a handler of the new configuration succeeds this one: their
// Member's Away closes, and relay sends the reconnect frame.
func (dr *drainer) begin() {
	if caddy.Exiting() {
		process.drainers.exit(dr.app.exitLimit())
		return
	}
	dr.superseding.Do(func() {
		switch {
		case !dr.reload:
		case process.drainers.haveSuccessors(dr):
			dr.Reload(drain.OnReload)
		default:
			// A client that reads a response may do so to its end. A channel has
			// none, and a client that follows it has to learn that it is gone.
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
	process.drainers.add(dr)
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// withConn notes the connection, below TLS: closing TLS writes an alert, which
// may block.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if _, known := ctx.Value(connKey{}).(net.Conn); known {
		return ctx
	}
	if tlsConn, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tlsConn.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// Join implements relay.Drain: a client, or a producer, becomes one of those that
// are drained.
func (dr *drainer) Join(returning drain.Returning, end, cut func()) *drain.Member {
	m := dr.Group.Join(returning, end, cut)
	if dr.superseded.Load() { // else it is in the set as long as it has members
		process.drainers.add(dr)
	}
	return m
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
	m := dr.Join(drain.Never, nil, cut)
	return func() {
		m.Leave()
		if deadline, exits := process.drainers.deadline(dr); exits {
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
	return &deliver.RefusalError{
		Answer: event.TerminalDraining.Err, RetryAfter: dr.Retry(), Reason: event.ReasonExit,
	}
}
