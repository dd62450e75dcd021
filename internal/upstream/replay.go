package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Attempts is what is remembered of one request while backend after backend is
// asked. It belongs to the goroutine that asks them.
type Attempts struct {
	n    int
	body []byte
	read error // nil once the whole body is in body
	have bool
}

// Number returns how many attempts there were.
func (a *Attempts) Number() int { return a.n }

// MaxReplayed is how much of a request body is held, in bytes, so that it can be
// sent again.
const MaxReplayed = 1 << 20

// errMore is where a body is longer than what is held, or has no end that is known.
var errMore = errors.New("the request body cannot be sent again")

// Begin counts an attempt and returns the request with its whole body. The error is
// that the body was sent once and cannot be again.
func (a *Attempts) Begin(req *http.Request) (*http.Request, error) {
	a.n++
	if req.Body == nil || req.Body == http.NoBody {
		a.have = true
		return req, nil
	}
	if !a.have {
		a.have = true
		a.body, a.read = hold(req)
		if a.read != nil && !errors.Is(a.read, errMore) {
			return nil, fmt.Errorf("reading the request body: %w", a.read)
		}
	} else if a.read != nil {
		return nil, a.read
	}
	again := *req
	if a.read != nil {
		again.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(a.body), req.Body), req.Body}
		return &again, nil
	}
	again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.body)), nil }
	again.Body, _ = again.GetBody()
	return &again, nil
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

// Replayable reports whether another attempt can be made.
func (a *Attempts) Replayable() bool { return a.read == nil }

// Body returns what is held of the request body: its start, where it is longer.
func (a *Attempts) Body() []byte { return a.body }
