package llmstream

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

// pooledLimiter is a limiter in the pool.
type pooledLimiter struct{ *limit.Limiter }

// Destruct implements caddy.Destructor. The limiter is no longer in use.
func (pooledLimiter) Destruct() error { return nil }

// acquireLimiter returns the limiter of a key, which the caller must release. It
// is used by the handlers that have the limit and by every place that is taken,
// so that its count goes on over a reload.
func acquireLimiter(key string, config limit.Config) (*limit.Limiter, error) {
	v, _, err := process.limiters.LoadOrNew(key, func() (caddy.Destructor, error) {
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
	_, err := process.limiters.Delete(a.key)
	return err
}

// enter returns what takes a place for a request, perhaps after waiting for it.
// That in turn returns what gives the place back, or an error that the client is
// told, or ingest.ErrClientGone. It is nil where places are not limited.
func (a *admission) enter(r *http.Request) func(ctx context.Context) (leave func(), err error) {
	if a == nil {
		return nil
	}
	return func(ctx context.Context) (func(), error) {
		key := ""
		if a.per != "" {
			key = normalKey(replacerOf(r).ReplaceAll(a.per, ""))
		}
		slot, err := a.limiter.Acquire(ctx, key)
		if code := limit.Code(err); code != "" {
			return nil, a.refusal(code, err, key)
		}
		if err != nil {
			return nil, ingest.ErrClientGone
		}
		if _, err := acquireLimiter(a.key, a.config); err != nil {
			slot.Release()
			return nil, err
		}
		return sync.OnceFunc(func() {
			slot.Release()
			_, _ = process.limiters.Delete(a.key)
		}), nil
	}
}

// normalKey returns a key of `per` without what makes no difference where it is a
// credential (RFC 9110, section 11.4): the case of its scheme, which is what
// stands before the first space, and how many spaces come after it. Otherwise a
// client would have a limit for each spelling.
func normalKey(key string) string {
	parts := strings.Fields(key)
	if len(parts) > 1 {
		parts[0] = strings.ToLower(parts[0])
	}
	return strings.Join(parts, " ")
}

// refusal is the answer to a request that gets no place.
func (a *admission) refusal(code event.Code, err error, key string) error {
	status := http.StatusTooManyRequests
	if code == event.CodeDraining {
		status = http.StatusServiceUnavailable
	}
	message, _ := strings.CutPrefix(err.Error(), "limit: ")
	return &deliver.RefusalError{
		Answer:     &event.Error{Code: code, Status: status, Message: message},
		RetryAfter: a.limiter.RetryAfter(key),
		Reason:     event.ReasonExit,
	}
}

// queuedRequests returns how many requests wait for a place, at all limits
// together.
func queuedRequests() int {
	n := 0
	process.limiters.Range(func(_, v any) bool {
		_, queued := v.(pooledLimiter).Stats()
		n += queued
		return true
	})
	return n
}
