package llmstream

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

// Delivery is how clients are treated: by the handler, and by the control
// endpoints of its resume.
type Delivery struct {
	// How long things may take.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// After how much silence towards a client it is sent a comment, so that
	// nothing on the way takes the connection for dead. Before the upstream's
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
	// Default: a response belongs to the client that asked for it.
	Resume *Resume `json:"resume,omitempty"`

	// How clients are treated when the configuration is replaced and when the
	// process exits.
	Drain *Drain `json:"drain,omitempty"`

	app   *App
	drain *drainer
	route *relay.Route
	pace  deliver.Pace
}

// minHeartbeat is the shortest time between two heartbeats: what is below is no
// silence.
const minHeartbeat = 10 * time.Millisecond

// defaultBuffer is how many events a client may lag.
const defaultBuffer = 64

// applyDefaults sets what was left out.
func (d *Delivery) applyDefaults() {
	if d.Buffer == 0 {
		d.Buffer = defaultBuffer
	}
	if d.Timeouts == nil {
		d.Timeouts = new(Timeouts)
	}
	if d.Drain == nil {
		d.Drain = new(Drain)
	}
	d.pace = deliver.Pace{Policy: deliver.Policy(d.SlowClient), Events: d.Buffer, Resumable: d.Resume != nil}
	if d.Resume != nil {
		d.Resume.applyDefaults()
	}
	if d.pace.Policy == "" {
		d.pace.Policy = deliver.SlowBlock
		if d.Resume != nil {
			d.pace.Policy = deliver.SlowCoalesce
		}
	}
}

// provision sets up what relays responses. prefix is that of the control
// endpoints, empty for the handler.
func (d *Delivery) provision(ctx caddy.Context, prefix string) error {
	app, err := ctx.App("llm_stream")
	if err != nil {
		return err
	}
	d.app = app.(*App)
	d.drain = newDrainer(ctx, d.app, d.Drain)
	if d.Resume != nil {
		d.drain.resumes, d.drain.prefix, d.drain.place = true, prefix, d.Resume.Place
	}
	process.drainers.add(d.drain)
	limits := d.Timeouts.limits()
	limits.Heartbeat = orDefault(d.Heartbeat, defaultHeartbeat)
	d.route = &relay.Route{
		Logger: ctx.Logger(), Metrics: d.app.metrics, Board: process.board, Registry: d.app.registry, Shared: d.app.shared(), Drain: d.drain,
		Limits: limits, WriteTimeout: orDefault(d.Timeouts.Write, defaultWriteTimeout), ReadTimeout: orDefault(d.Timeouts.Read, defaultReadTimeout),
		Pace: d.pace, Memory: d.app.registry,
		Status: statusOf,
	}
	return nil
}

func (d *Delivery) cleanup() {
	if d.drain != nil {
		d.drain.cleanup()
	}
}

// validate makes sure that the configuration can work.
func (d *Delivery) validate() error {
	if d.Heartbeat > 0 && time.Duration(d.Heartbeat) < minHeartbeat {
		return fmt.Errorf("heartbeat: must be at least %v, not %v", minHeartbeat, time.Duration(d.Heartbeat))
	}
	if d.Buffer < 1 {
		return fmt.Errorf("buffer: must be at least 1 event, not %d", d.Buffer)
	}
	if err := d.Timeouts.validate(); err != nil {
		return err
	}
	if err := d.Drain.validate(); err != nil {
		return err
	}
	if d.Resume != nil {
		if err := d.Resume.validate(); err != nil {
			return err
		}
		config := d.Drain.config()
		if away := config.Spread + 2*config.Retry; time.Duration(d.Resume.Grace) <= away {
			return fmt.Errorf("grace: must be longer than drain spread + 2 × retry (%v), in which clients come back, not %v",
				away, time.Duration(d.Resume.Grace))
		}
	}
	return d.validateSlowClient()
}

func (d *Delivery) validateSlowClient() error {
	switch d.pace.Policy {
	case deliver.SlowBlock:
		if d.Resume != nil {
			return errors.New("slow_client: block would let one client delay others; it cannot be used with resume")
		}
	case deliver.SlowCoalesce:
		if d.Resume == nil {
			return errors.New("slow_client: coalesce needs a log that is kept; it can be used only with resume")
		}
	case deliver.SlowDrop, deliver.SlowDisconnect:
	default:
		return fmt.Errorf("slow_client: unknown policy %q; must be block, coalesce, drop or disconnect", d.pace.Policy)
	}
	return nil
}

// counted serves a client that stays, where there are not too many already.
func (d *Delivery) counted(w http.ResponseWriter, r *http.Request, serve func() error) error {
	return d.undrained(w, r, func() error {
		if !d.app.enter() {
			return d.route.Refuse(w, r, emit.DialectText, errTooManyClients)
		}
		defer d.app.leave()
		return serve()
	})
}

// errTooManyClients turns a request away because of max_clients.
var errTooManyClients = &deliver.RefusalError{
	Answer: &event.Error{
		Code: event.CodeTooManyClients, Status: http.StatusServiceUnavailable, Message: "too many clients",
	},
	RetryAfter: time.Second,
	Reason:     event.ReasonBusy,
}

// undrained serves a request unless the process goes down, and lets that wait
// for it.
func (d *Delivery) undrained(w http.ResponseWriter, r *http.Request, serve func() error) error {
	if d.drain.Reason() == drain.Exit {
		return d.route.Refuse(w, r, emit.DialectText, d.drain.turnAway())
	}
	defer d.drain.open(w, r)()
	return serve()
}
