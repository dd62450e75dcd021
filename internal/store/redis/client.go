package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// redial is how long an address that could not be reached is left alone.
const redial = 250 * time.Millisecond

// connector makes the client when it is first needed: Redis may be away when the
// configuration is loaded. Once made, the client itself connects again.
type connector struct {
	option rueidis.ClientOption

	mu      sync.Mutex
	closed  bool
	client  rueidis.Client
	dialing chan struct{} // closed when the attempt is over; nil while there is none
	failed  time.Time
	err     error
}

// get returns the client.
func (c *connector) get(ctx context.Context) (rueidis.Client, error) {
	for {
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			return nil, store.ErrClosed
		case c.client != nil:
			c.mu.Unlock()
			return c.client, nil
		case c.dialing == nil && time.Since(c.failed) < redial:
			err := c.err
			c.mu.Unlock()
			return nil, err
		case c.dialing == nil:
			c.dialing = make(chan struct{})
			go c.dial()
		}
		dialing := c.dialing
		c.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// dial makes the client. Close waits for it.
func (c *connector) dial() {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dialing)
	c.dialing = nil
	if err != nil {
		c.failed, c.err = time.Now(), fmt.Errorf("redis store: %w", err)
		return
	}
	c.client = client
}

// close closes the client and waits for what it does.
func (c *connector) close() {
	c.mu.Lock()
	c.closed = true
	dialing := c.dialing
	c.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client != nil {
		client.Close()
	}
}
