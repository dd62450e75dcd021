package loop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrNotTaken is what every error of Take is: the response goes on as if Take
// had not been called.
var ErrNotTaken = errors.New("the connection stays with its handler")

// refusal is an ErrNotTaken that says why.
type refusal string

func (r refusal) Error() string { return ErrNotTaken.Error() + ": " + string(r) }

// Is implements what errors.Is asks for.
func (r refusal) Is(target error) bool { return target == ErrNotTaken } //nolint:errorlint // that is the question

const (
	errProtocol   refusal = "it does not speak HTTP/1.1, or its response writer is unknown"
	errNotBegun   refusal = "no head was sent"
	errNotChunked refusal = "the body is not sent in chunks"
	errEncoded    refusal = "the body is encoded on its way"
	errTrailers   refusal = "trailers were announced"
	errBody       refusal = "the request's body was not read to its end"
	errFlush      refusal = "what was written could not be flushed"
	errHijack     refusal = "the response writer does not give it up"
	errClosing    refusal = "the loop takes no more"
)

// Options say how a connection is to be treated.
type Options struct {
	// Stall is how long a client may take nothing of what there is for it
	// before its connection is cut. 0 means for ever.
	Stall time.Duration
	// BodyRead says that the request's body was read until io.EOF, without
	// which a connection with a body is not taken.
	BodyRead bool
}

// Take parks the connection of a response whose status and header the handler
// has sent with WriteHeader, and of which it may have written a part. From
// then on only the task writes, beginning with the first Wake, and the handler
// must not use w any more; it had better return soon, for its stack and
// buffers. The connection is given back to the server when the task says End
// and the handler has returned, that is when the context of r is done.
//
// Take is called in the handler's goroutine. Its errors are ErrNotTaken; then
// nothing has changed, but that what was written has been flushed.
func (l *Loop) Take(w http.ResponseWriter, r *http.Request, task Task, options Options) (*Conn, error) {
	if err := refuse(w, r, options); err != nil {
		return nil, err
	}
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return nil, errFlush
	}
	head, ok := headOf(w)
	if !ok || !head.chunked {
		return nil, errNotChunked
	}
	if !l.reserve() {
		return nil, errClosing
	}
	conn, buffers, err := rc.Hijack()
	if err != nil {
		l.cancel()
		return nil, errHijack
	}
	c := &Conn{loop: l, task: task, stall: options.Stall}
	c.early = release(buffers)
	c.server, _ = r.Context().Value(http.ServerContextKey).(*http.Server)
	served, direct, early := unwrap(conn)
	c.early = append(c.early, early...)
	if c.server != nil && !head.close {
		c.net = served
	}
	l.add(c, conn, direct)
	context.AfterFunc(r.Context(), func() { c.signal(returned) })
	return c, nil
}

// refuse says why a connection cannot be taken, where that is to be seen before
// anything is done.
func refuse(w http.ResponseWriter, r *http.Request, options Options) error {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return errProtocol
	}
	head, ok := headOf(w)
	if !ok {
		return errProtocol
	}
	if !head.sent {
		return errNotBegun
	}
	if !options.BodyRead && r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		return errBody
	}
	header := w.Header()
	if len(header["Content-Encoding"]) > 0 {
		return errEncoded
	}
	for name := range header {
		if name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) {
			return errTrailers
		}
	}
	return nil
}

// open connects c with its client. The loop's lock must be held.
func (c *Conn) open(conn, direct net.Conn) {
	if direct != nil {
		if s := c.loop.poll(direct, c.id); s != nil {
			c.socket = s
			return
		}
		conn = direct
	}
	s := newAttended(c, conn)
	c.socket = s
	s.start(c.loop)
}

// release makes the server's buffers let go of their memory, which the server's
// goroutine holds on to as long as the handler runs but does not use again. It
// returns what was read already: a request that came too early.
func release(buffers *bufio.ReadWriter) []byte {
	read, _ := buffers.Reader.Peek(buffers.Reader.Buffered())
	read = bytes.Clone(read)
	*buffers.Reader = bufio.Reader{}
	*buffers.Writer = bufio.Writer{}
	return read
}
