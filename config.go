package llmstream

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// This file has the blocks of the configuration: their fields, defaults and
// validation.

// MaxStreams bounds how many generations run at a time. Only requests that can
// generate count, and only while they hold an upstream call. The count goes on
// over a reload, also when the numbers change.
type MaxStreams struct {
	// Handlers with the same name share one limit, across sites. Without a
	// name, a limit belongs to its server, matcher and place among equals.
	Name string `json:"name,omitempty"`

	// How many generations may run at a time. 0 is no bound on the whole,
	// where `per` bounds them.
	Max int `json:"max,omitempty"`

	// How many requests may wait for a place. Default: none; what finds no
	// place is answered with 429.
	Queue int `json:"queue,omitempty"`

	// How long one may wait.
	Wait caddy.Duration `json:"wait,omitempty"`

	// A placeholder whose value is a key, such as
	// `{http.request.header.Authorization}`.
	Per string `json:"per,omitempty"`

	// How many generations of one key may run or wait. It is checked before
	// the queue. An empty key is one key.
	PerMax int `json:"per_max,omitempty"`

	// What tells a limit without a name from others of its server; the
	// Caddyfile puts the matcher here.
	Place string `json:"place,omitempty"`
}

func (m *MaxStreams) validate() error {
	switch {
	case m.Max < 0:
		return fmt.Errorf("max_streams: must be at least 1, not %d", m.Max)
	case m.Queue < 0, m.Queue > 0 && m.Wait <= 0, m.Queue == 0 && m.Wait != 0:
		return errors.New("max_streams: queue needs a length of at least 1 and a time longer than 0")
	case m.Queue > 0 && m.Max == 0:
		return errors.New("max_streams: a queue needs a number of streams to wait for")
	case (m.Per == "") != (m.PerMax == 0), m.PerMax < 0:
		return errors.New("max_streams: per needs a placeholder and a number of at least 1")
	case m.Per != "" && !hasPlaceholder(m.Per):
		return fmt.Errorf("per: must be a placeholder; all requests would have the key %q", m.Per)
	case m.Max == 0 && m.Per == "":
		return errors.New("max_streams: bounds nothing")
	}
	return nil
}

func (m *MaxStreams) config() limit.Config {
	return limit.Config{Max: m.Max, Queue: m.Queue, Wait: time.Duration(m.Wait), PerKey: m.PerMax}
}

// Timeouts bounds how long things may take. A negative duration switches one
// off. The defaults are generous, because reasoning models are silent for
// minutes.
type Timeouts struct {
	// How long until the model's first output, which reasoning and tool calls
	// are as well: from admission where the request asks for a stream, else
	// from the upstream's header. Default: 5m, or total where that is shorter.
	FirstToken caddy.Duration `json:"first_token,omitempty"`

	// How long between two outputs of the model. Time in which the upstream
	// is held back by a slow client does not count. Default: 2m.
	BetweenTokens caddy.Duration `json:"between_tokens,omitempty"`

	// How long a response may take in all, from admission. Default: off.
	Total caddy.Duration `json:"total,omitempty"`

	// How long one write to a client may make no progress; then the client is
	// disconnected. It counts instead of Caddy's own write_idle timeout.
	// Default: 30s.
	Write caddy.Duration `json:"write,omitempty"`

	// How long until the request body is there; each 16 KiB of it that have come
	// add a second. A later one is answered with 408. Default: 30s.
	Read caddy.Duration `json:"read,omitempty"`
}

// The defaults of Timeouts, and of heartbeat.
const (
	defaultFirstToken    = 5 * time.Minute
	defaultBetweenTokens = 2 * time.Minute
	defaultWriteTimeout  = 30 * time.Second
	defaultReadTimeout   = 30 * time.Second
	defaultHeartbeat     = 15 * time.Second
)

func (t *Timeouts) validate() error {
	if t.Total > 0 && t.FirstToken > 0 && t.Total <= t.FirstToken {
		return fmt.Errorf("timeouts: total (%v) must be longer than first_token (%v)",
			time.Duration(t.Total), time.Duration(t.FirstToken))
	}
	return nil
}

// limits returns what a watch of a producer enforces.
func (t *Timeouts) limits() timeouts.Limits {
	l := timeouts.Limits{
		FirstToken:    orDefault(t.FirstToken, defaultFirstToken),
		BetweenTokens: orDefault(t.BetweenTokens, defaultBetweenTokens),
		Total:         orDefault(t.Total, 0),
	}
	if l.Total > 0 && t.FirstToken == 0 {
		l.FirstToken = min(l.FirstToken, l.Total)
	}
	return l
}

// Resume keeps responses, so that they can be resumed after a cut, followed by
// others, and cancelled from elsewhere. A generation no longer belongs to the
// client that asked for it: it goes on when that one leaves.
type Resume struct {
	// The path prefix of the control endpoints, such as `/llm`: streams/{id},
	// cancel/{id} and channels/{channel} below it.
	Prefix string `json:"prefix,omitempty"`

	// How long a response can be read after its end. Default: 10m.
	Keep caddy.Duration `json:"keep,omitempty"`

	// The largest log of one response, in bytes. A longer response ends with
	// the error response_too_large. Default: 4 MiB.
	MaxSize int64 `json:"max_size,omitempty"`

	// How long a generation goes on that no client reads; then the upstream is
	// cancelled. Default: 30s.
	Grace caddy.Duration `json:"grace,omitempty"`

	// The owner of a response, a placeholder such as `{http.auth.user.id}`: only
	// a request with the same value may follow or cancel it. `anyone` says that
	// knowing the id is enough, as it is without an owner. Where it is configured
	// and empty, a response cannot be resumed.
	Owner string `json:"owner,omitempty"`

	// The channel on which responses are announced, a placeholder such as
	// `{http.request.header.X-Chat-Id}`. Needs an owner.
	Channel string `json:"channel,omitempty"`

	// Requests with the same value share ids, channels and idempotency keys.
	// Default: `{http.request.host}`.
	Scope string `json:"scope,omitempty"`

	// The largest request body, in bytes; it is read whole before the upstream
	// is called. A larger one is answered with 413. Default: 32 MiB.
	MaxBody int64 `json:"max_body,omitempty"`

	// What tells this route from others with the same prefix, so that a reload
	// sends clients away only where they find it again. The Caddyfile adapter
	// sets it to the matcher.
	Place string `json:"place,omitempty"`
}

// The defaults of Resume.
const (
	defaultKeep    = 10 * time.Minute
	defaultMaxSize = 4 << 20
	defaultGrace   = 30 * time.Second
	defaultScope   = "{http.request.host}"
	defaultMaxBody = 32 << 20
)

// maxHeldSize is the largest size of one thing that is held in memory, in bytes.
const maxHeldSize = 1 << 30

// ownerAnyone is the value of owner with which knowing an id is enough.
const ownerAnyone = "anyone"

// applyDefaults sets what was left out.
func (r *Resume) applyDefaults() {
	r.Prefix = strings.TrimRight(r.Prefix, "/")
	if r.Keep == 0 {
		r.Keep = caddy.Duration(defaultKeep)
	}
	if r.MaxSize == 0 {
		r.MaxSize = defaultMaxSize
	}
	if r.Grace == 0 {
		r.Grace = caddy.Duration(defaultGrace)
	}
	if r.Scope == "" {
		r.Scope = defaultScope
	}
	if r.MaxBody == 0 {
		r.MaxBody = defaultMaxBody
	}
}

func (r *Resume) validate() error {
	switch {
	case !strings.HasPrefix(r.Prefix, "/"):
		return fmt.Errorf("resume: the prefix must be an absolute path below the root, such as /llm, not %q", cmp.Or(r.Prefix, "/"))
	case r.Keep < 0:
		return fmt.Errorf("keep: must be longer than 0, not %v", time.Duration(r.Keep))
	case r.Grace < 0:
		return fmt.Errorf("grace: must be longer than 0, not %v", time.Duration(r.Grace))
	case strings.ContainsAny(r.Prefix, "*{}?#"):
		return fmt.Errorf("resume: the prefix must be a plain path, not %q", r.Prefix)
	case r.MaxSize < 1 || r.MaxSize > maxHeldSize:
		return fmt.Errorf("max_size: must be from 1 byte to 1 GiB, not %d", r.MaxSize)
	case r.MaxBody < 1 || r.MaxBody > maxHeldSize:
		return fmt.Errorf("max_body: must be from 1 byte to 1 GiB, not %d", r.MaxBody)
	case r.Owner != "" && r.Owner != ownerAnyone && !hasPlaceholder(r.Owner):
		return fmt.Errorf("owner: must be a placeholder or `anyone`; every request would have the owner %q", r.Owner)
	case r.Channel != "" && r.Owner == "":
		return errors.New("channel: needs an owner; say `owner anyone` where knowing the channel is enough")
	}
	return nil
}

// Drain says how open clients are treated when the configuration is replaced
// and when the process exits.
type Drain struct {
	// How long responses may go on after the exit has begun; then the rest is
	// ended with an error. Caddy's grace_period, where it is shorter, counts.
	// Default: 30s.
	Deadline caddy.Duration `json:"deadline,omitempty"`

	// The time over which clients that can come back are told to reconnect, so
	// that they do not come at once. Default: 5s.
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

// maxDrainTime bounds the times of drain: beyond a day they mean nothing, and
// beyond centuries they overflow.
const maxDrainTime = 24 * time.Hour

// The values of on_reload.
const (
	onReloadReconnect = "reconnect"
	onReloadOff       = "off"
)

func (d *Drain) validate() error {
	for _, option := range []struct {
		name  string
		value caddy.Duration
	}{{"deadline", d.Deadline}, {"spread", d.Spread}, {"retry", d.Retry}} {
		if option.value < 0 || time.Duration(option.value) > maxDrainTime {
			return fmt.Errorf("%s: must be longer than 0 and at most %v, not %v", option.name, maxDrainTime, time.Duration(option.value))
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
