package llmstream

import (
	"errors"
	"io"
	"sync/atomic"
)

// interleave lets a stream begin before the request body has been read: a
// backend may answer before it has had the whole prompt. No further request is
// taken from such a connection, for net/http would have to read the body to its
// end first, whenever that may be. The caller holds mu.
func (c *client) interleave() {
	if c.upload != nil && !c.upload.ended.Load() {
		c.w.Header().Set("Connection", "close")
		_ = c.rc.EnableFullDuplex()
	}
}

// upload is a request body of HTTP/1.1.
type upload struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		u.ended.Store(true)
	}
	return n, err
}

// Interface guard
var _ io.ReadCloser = (*upload)(nil)
