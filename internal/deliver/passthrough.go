package deliver

import (
	"bytes"
	"net/http"
	"strings"
)

const eventStream = "text/event-stream"

// Pass writes the head of a response that passes as it is, and returns where its
// body goes; nil where another response is committed already. A stream is
// written under the write timeout, and with comments heartbeats may stand
// between its frames, where it has such.
func (c *Conn) Pass(status int, header http.Header, stream, comments bool) http.ResponseWriter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.commit(passing, false) {
		return nil
	}
	replaceHeader(c.w.Header(), header)
	if stream {
		c.beginBeforeUploadLocked()
	}
	c.w.WriteHeader(status)
	if !stream {
		return c.w
	}
	if comments && strings.HasPrefix(header.Get("Content-Type"), eventStream) {
		c.frames = new(frameTail)
	}
	return &passingStream{c.w, c}
}

// Continue returns where the body of a stream goes that passes as it is after
// heartbeats have committed the head of one; nil where a frame was sent.
func (c *Conn) Continue() http.ResponseWriter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.load() != streaming || c.scratch.Kind != 0 {
		return nil
	}
	c.state.move(passing)
	return &passingStream{c.w, c}
}

// Passes reports whether the response passes as it is: nothing of the log goes
// to this client.
func (c *Conn) Passes() bool { return c.state.load() == passing }

// passingStream is the body of a stream that passes as it is.
type passingStream struct {
	http.ResponseWriter
	conn *Conn
}

// Write implements http.ResponseWriter.
func (p *passingStream) Write(b []byte) (int, error) {
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := boundedWriter{c}.Write(b)
	c.fail(err)
	c.frames.add(b[:n])
	return n, err
}

// FlushError is what an http.ResponseController calls.
func (p *passingStream) FlushError() error {
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.flushLocked()
	c.fail(err)
	return err
}

// frameTail is the end of what was written of a stream of server-sent events: at
// most four bytes. There is none for a stream that takes no comments.
type frameTail struct{ tail []byte }

func (f *frameTail) add(b []byte) {
	if f == nil {
		return
	}
	f.tail = append(f.tail, b[max(0, len(b)-4):]...)
	f.tail = f.tail[max(0, len(f.tail)-4):]
}

// betweenFrames reports whether a comment may stand here: at the beginning, or
// after a blank line.
func (f *frameTail) betweenFrames() bool {
	return f != nil && (len(f.tail) == 0 || bytes.HasSuffix(f.tail, []byte("\n\n")) ||
		bytes.HasSuffix(f.tail, []byte("\r\n\r\n")) || bytes.HasSuffix(f.tail, []byte("\r\r")))
}
