package deliver

import (
	"time"
)

// maxPiece is how much is written to a client at a time, in bytes: the write
// timeout bounds each piece, so that a client which takes something is not cut,
// however much there is for it.
const maxPiece = 4 << 10

// unbounded is the write timeout of a client that has none.
const unbounded = 10 * 365 * 24 * time.Hour

// boundedWriter writes to a client in pieces under the write timeout, and counts
// what the client was sent. The Conn's lock must be held.
type boundedWriter struct{ *Conn }

// Write implements io.Writer.
func (b boundedWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		piece := p
		if b.arm() {
			piece = p[:min(len(p), maxPiece)]
		}
		var n int
		n, err = b.w.Write(piece)
		b.count(n)
		written += n
		p = p[n:]
	}
	return written, err
}

func (c *Conn) count(n int) {
	c.sent.Add(int64(n))
	c.Metrics.SentToClient(n)
}

// flushLocked flushes what was written. c.mu must be held.
func (c *Conn) flushLocked() error {
	c.arm()
	err := c.rc.Flush()
	if err == nil && c.Idle == nil && c.WriteTimeout > 0 {
		_ = c.rc.SetWriteDeadline(time.Time{}) // on HTTP/2 it would reset a stream that is merely silent
	}
	return err
}

// arm bounds the next write. Where Caddy bounds writes by itself, it is told once
// by how much, so that a token does not cost two more system calls; it then
// writes in pieces, too. arm reports whether the caller has to.
func (c *Conn) arm() (inPieces bool) {
	switch {
	case c.Idle == nil && c.WriteTimeout <= 0:
		return false
	case c.Idle == nil:
		_ = c.rc.SetWriteDeadline(time.Now().Add(c.WriteTimeout))
		return true
	case !c.bounded:
		c.bounded = true
		timeout := c.WriteTimeout
		if timeout <= 0 {
			timeout = unbounded
		}
		c.Idle.Override(timeout, 0, maxPiece) // to the end of the request: all that follows is ours
	}
	return false
}
