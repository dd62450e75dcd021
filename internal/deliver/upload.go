package deliver

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Upload is the request body of an HTTP/1.1 client. The response may begin
// before it was read.
type Upload struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end
}

// Uploading wraps the body of an HTTP/1.1 request, so that a response which
// begins before it was read does so rightly.
func (c *Conn) Uploading(r *http.Request) {
	if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		c.upload = &Upload{ReadCloser: r.Body}
		r.Body = c.upload
	}
}

// Read implements io.Reader.
func (u *Upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		u.ended.Store(true)
	}
	return n, err
}

// beginBeforeUploadLocked lets a stream begin before the request body has been
// read: a backend may answer before it has had the whole prompt. No further
// request is taken from such a connection, for net/http would have to read the
// body to its end first, whenever that may be. c.mu must be held.
func (c *Conn) beginBeforeUploadLocked() {
	if c.upload != nil && !c.upload.ended.Load() {
		c.w.Header().Set("Connection", "close")
		_ = c.rc.EnableFullDuplex()
	}
}

// Interface guard
var _ io.ReadCloser = (*Upload)(nil)
