package llmstream

import (
	"bufio"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// beat writes a heartbeat. Where somebody is writing, there is no silence to
// be broken.
func (c *client) beat() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	switch {
	case c.ended, c.left, c.mute, c.failure != nil, c.sealed && !c.committed,
		c.mirror != nil && !c.mirror.betweenFrames():
		return
	}
	_ = c.writeLocked(func(bw *bufio.Writer) bool {
		c.commit() // for a mirror it does nothing: its header is sent
		emit.Heartbeat(bw)
		return true
	})
}

// seal implements outlet.
func (c *client) seal() (committed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.committed
}
