package llmstream

import (
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// shared is what outlives a configuration: the responses that can be found
// again, and who reads them. It lives as long as a handler or a running
// response uses it.
type shared struct {
	registry *fanout.Registry
	clients  atomic.Int64   // open client requests of all sites
	running  sync.WaitGroup // detached producers
}

var pool = caddy.NewUsagePool()

const poolKey = "llm_stream"

// acquireShared returns the state of this process; the caller must release it.
func acquireShared() (*shared, error) {
	v, _, err := pool.LoadOrNew(poolKey, func() (caddy.Destructor, error) {
		return &shared{registry: fanout.NewRegistry()}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*shared), nil
}

func releaseShared() error {
	_, err := pool.Delete(poolKey)
	return err
}

// Destruct forgets all responses. Nobody uses them any more.
func (s *shared) Destruct() error { return s.registry.Destruct() }

// Interface guards
var _ caddy.Destructor = (*shared)(nil)
