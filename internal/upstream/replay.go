package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Attempts is what is remembered of one request while backend after backend is
// asked. It belongs to the goroutine that asks them.
type Attempts struct {
	n    int
	body []byte
	read error // nil once the whole body is in body
	have bool
	long *longBody // of the last attempt, where not the whole body is held
}

// Number returns how many attempts there were.
func (a *Attempts) Number() int { return a.n }

// MaxReplayed is how much of a request body is held, in bytes, so that it can be
// sent again.
const MaxReplayed = 1 << 20

// errMore is where a body is longer than what is held, or has no end that is known.
var errMore = errors.New("the request body cannot be sent again")

// Begin counts an attempt and returns the request with its whole body. The error is
// that the body cannot be read, or was sent once and cannot be again; where the
// client has left, it is why the request has ended, because no backend is to blame
// for that.
func (a *Attempts) Begin(req *http.Request) (*http.Request, error) {
	a.n++
	if req.Body == nil || req.Body == http.NoBody {
		a.have = true
		return req, nil
	}
	if !a.have {
		a.have = true
		a.body, a.read = hold(req)
	}
	again := *req
	switch {
	case a.read == nil:
		again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.body)), nil }
		again.Body, _ = again.GetBody()
		return &again, nil
	case !errors.Is(a.read, errMore):
		if req.Context().Err() != nil {
			return nil, context.Cause(req.Context())
		}
		return nil, fmt.Errorf("reading the request body: %w", a.read)
	case !a.Replayable():
		return nil, errMore
	}
	a.long = &longBody{held: a.body, rest: req.Body}
	again.Body = a.long
	return &again, nil
}

// longBody is a request body of which only the start is held. An attempt that has
// not read past that start, as one that found no connection, has used up nothing.
type longBody struct {
	rest io.ReadCloser

	mu   sync.Mutex
	held []byte
	past bool // rest has been read from
	over bool // the attempt: it may not read any more
}

// Read implements io.Reader. rest is read without mu, because that may take long.
func (b *longBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.held) > 0 {
		n := copy(p, b.held)
		b.held = b.held[n:]
		b.mu.Unlock()
		return n, nil
	}
	b.past = true
	b.mu.Unlock()
	return b.rest.Read(p) //nolint:wrapcheck // a reader's error is its own
}

// Close implements io.Closer. A rest that nobody has read from is the next attempt's.
func (b *longBody) Close() error {
	if b.give() {
		return nil
	}
	return b.rest.Close() //nolint:wrapcheck // likewise
}

// give ends the attempt's reading, which may go on after it has failed, and reports
// whether nothing is missing for another.
func (b *longBody) give() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return !b.past
}

// hold reads a body, as far as it may be held. The error is errMore where there is
// more. Of a body without a length that is no JSON, as of a call in gRPC, nothing is
// read: its client may wait for an answer before it says more.
func hold(req *http.Request) ([]byte, error) {
	if req.ContentLength < 0 && !strings.Contains(req.Header.Get("Content-Type"), "json") {
		return nil, errMore
	}
	held, err := io.ReadAll(io.LimitReader(req.Body, MaxReplayed+1))
	if err == nil && len(held) > MaxReplayed {
		err = errMore
	}
	return held, err
}

// Replayable reports whether another attempt can be made. The last one must have
// failed: it can read nothing of the body from now on.
func (a *Attempts) Replayable() bool {
	return a.read == nil || errors.Is(a.read, errMore) && (a.long == nil || a.long.give())
}

// Body returns what is held of the request body: its start, where it is longer.
func (a *Attempts) Body() []byte { return a.body }
