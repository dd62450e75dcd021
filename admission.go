package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

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

// limits are the limiters of this process by key. Each is used by the handlers
// that have it and by every place that is taken, so that its count goes on
// over a reload.
var limits = caddy.NewUsagePool()

// pooledLimiter is a limiter in the pool.
type pooledLimiter struct{ *limit.Limiter }

// Destruct implements caddy.Destructor. Nobody uses the limiter any more.
func (pooledLimiter) Destruct() error { return nil }

func acquireLimiter(key string, config limit.Config) (*limit.Limiter, error) {
	v, _, err := limits.LoadOrNew(key, func() (caddy.Destructor, error) {
		return pooledLimiter{limit.New(config)}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(pooledLimiter).Limiter, nil
}

// admission lets requests in up to a limit.
type admission struct {
	key     string
	config  limit.Config
	per     string
	limiter *limit.Limiter
}

// newAdmission sets up the limit of a handler.
func newAdmission(ctx caddy.Context, app *App, m *MaxStreams) (*admission, error) {
	a := &admission{config: m.config(), per: m.Per}
	if m.Name != "" {
		a.key = "name " + m.Name
	} else {
		server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
		name := ""
		if server != nil {
			name = server.Name()
		}
		a.key = app.place("server " + name + " " + m.Place)
	}
	if err := app.register(a); err != nil {
		return nil, err
	}
	var err error
	a.limiter, err = acquireLimiter(a.key, a.config)
	return a, err
}

func (a *admission) release() error {
	_, err := limits.Delete(a.key)
	return err
}

// maxEarlyBody is how much of a request body is read before its request gets a
// place, in bytes.
const maxEarlyBody = 256 << 10

// prepareToWait reads the body of a request that may have to wait, as far as
// it is small: net/http notices that an HTTP/1.1 client has left only once the
// body was read to its end, and who leaves the queue must not hold a place in
// it.
func (a *admission) prepareToWait(r *http.Request) {
	if a == nil || a.config.Queue == 0 || r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	if active, _ := a.limiter.Stats(); active < a.config.Max {
		return
	}
	var early bytes.Buffer
	_, _ = io.CopyN(&early, r.Body, maxEarlyBody) // whoever reads the rest finds the error
	r.Body = &earlyBody{Reader: io.MultiReader(&early, r.Body), Closer: r.Body}
}

// earlyBody is a request body of which a part was read before.
type earlyBody struct {
	io.Reader
	io.Closer
}

// enter takes a place for a request, perhaps after waiting for it, and returns
// what gives it back. The error is one that the client is told, or that of the
// context.
func (a *admission) enter(ctx context.Context, repl *caddy.Replacer) (leave func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	key := ""
	if a.per != "" {
		key = repl.ReplaceAll(a.per, "")
	}
	slot, err := a.limiter.Acquire(ctx, key)
	if code := limit.Code(err); code != "" {
		return nil, a.refusal(event.Code(code), err, key)
	}
	if err != nil {
		return nil, errClientGone
	}
	if _, err := acquireLimiter(a.key, a.config); err != nil {
		slot.Release()
		return nil, err
	}
	return sync.OnceFunc(func() {
		slot.Release()
		_, _ = limits.Delete(a.key)
	}), nil
}

// refusal is the answer to a request that gets no place.
func (a *admission) refusal(code event.Code, err error, key string) error {
	status := http.StatusTooManyRequests
	if errors.Is(err, limit.ErrDraining) {
		status = http.StatusServiceUnavailable
	}
	message, _ := strings.CutPrefix(err.Error(), "limit: ")
	return &turnedAwayError{
		answer:     &event.Error{Code: code, Status: status, Message: message},
		retryAfter: a.limiter.RetryAfter(key),
		reason:     string(drain.Exit),
	}
}
