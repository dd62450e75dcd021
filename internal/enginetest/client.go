// Package enginetest is what the unit tests of the engine have in common: a
// client, its upload, a backend's words and a look at the metrics.
//
// The invariant: nothing here needs a socket, and whatever waits does so on a
// channel or a timer, so that it can be used in a bubble of testing/synctest.
package enginetest

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Client is the http.ResponseWriter of a client that takes as much as it is told
// to. Like net/http it sends on what was flushed, and the rest when the handler
// has returned: see Finish.
type Client struct {
	mu           sync.Mutex
	header       http.Header
	status       int         // 0 before it is written
	sent         http.Header // as the status was written
	informed     []int       // 1xx
	body         []byte
	flushed      int // how much of body the client has
	arrivals     []Arrival
	sizes        []int // of the writes
	credit       int   // bytes that it still takes; negative: any number
	writing      time.Time
	deadline     []time.Duration // what SetWriteDeadline was given, from then; 0 for none
	duplex       bool
	changed      chan struct{}
	failure      error // of writes and flushes
	flushFailure error
	began        time.Time
	upload       net.Conn // the server's end
}

// Arrival is what came to the client in one flush.
type Arrival struct {
	At   time.Duration // since NewClient
	Data string
}

// NewClient returns a client that takes everything.
func NewClient() *Client {
	return &Client{header: make(http.Header), credit: -1, changed: make(chan struct{}), began: time.Now()}
}

// Header implements http.ResponseWriter.
func (c *Client) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *Client) WriteHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case status < 200 && status != http.StatusSwitchingProtocols:
		c.informed = append(c.informed, status)
	case c.status == 0:
		c.status, c.sent = status, c.header.Clone()
	}
}

// Write implements http.ResponseWriter. It returns when the client has taken
// everything, or the write deadline has passed.
func (c *Client) Write(p []byte) (written int, err error) {
	c.WriteHeader(http.StatusOK)
	c.mu.Lock()
	c.sizes = append(c.sizes, len(p))
	c.mu.Unlock()
	for {
		n, wait, deadline, err := c.take(p[written:])
		if written += n; written == len(p) || err != nil {
			return written, err
		}
		if err := await(wait, deadline); err != nil {
			return written, err
		}
	}
}

// take takes what the client has credit for.
func (c *Client) take(p []byte) (n int, wait <-chan struct{}, deadline time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return 0, nil, time.Time{}, c.failure
	}
	if n = len(p); c.credit >= 0 {
		n = min(n, c.credit)
		c.credit -= n
	}
	c.body = append(c.body, p[:n]...)
	return n, c.changed, c.writing, nil
}

// await waits for a change, as long as the deadline allows.
func await(change <-chan struct{}, deadline time.Time) error {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-change:
		return nil
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

// change changes something that a Write may wait for.
func (c *Client) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Stall lets the client take nothing from now on.
func (c *Client) Stall() { c.change(func() { c.credit = 0 }) }

// Take lets a stalled client take n bytes more.
func (c *Client) Take(n int) { c.change(func() { c.credit += n }) }

// TakeAll lets the client take everything again.
func (c *Client) TakeAll() { c.change(func() { c.credit = -1 }) }

// Break lets writes fail, as when the client has closed the connection.
func (c *Client) Break() { c.change(func() { c.failure = errBroken }) }

// BreakAtFlush is Break for a connection on which only a flush meets the error.
func (c *Client) BreakAtFlush() { c.change(func() { c.flushFailure = errBroken }) }

var errBroken = errors.New("enginetest: the connection is broken")

// FlushError is what an http.ResponseController calls.
func (c *Client) FlushError() error {
	c.WriteHeader(http.StatusOK)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.failure, c.flushFailure); err != nil {
		return err
	}
	c.arriveLocked()
	return nil
}

// arriveLocked hands what was written to the client. c.mu must be held.
func (c *Client) arriveLocked() {
	if c.flushed < len(c.body) {
		c.arrivals = append(c.arrivals, Arrival{time.Since(c.began), string(c.body[c.flushed:])})
		c.flushed = len(c.body)
	}
}

// Finish is what the server does once the handler has returned.
func (c *Client) Finish() {
	c.WriteHeader(http.StatusOK)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arriveLocked()
}

// SetWriteDeadline is what an http.ResponseController calls.
func (c *Client) SetWriteDeadline(t time.Time) error {
	c.change(func() {
		c.writing = t
		var left time.Duration
		if !t.IsZero() {
			left = time.Until(t)
		}
		c.deadline = append(c.deadline, left)
	})
	return nil
}

// SetReadDeadline is what an http.ResponseController calls: it bounds the upload.
func (c *Client) SetReadDeadline(t time.Time) error {
	if c.upload == nil {
		return nil
	}
	return c.upload.SetReadDeadline(t)
}

// EnableFullDuplex is what an http.ResponseController calls.
func (c *Client) EnableFullDuplex() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.duplex = true
	return nil
}

// FullDuplex reports whether the response may begin before the upload has ended.
func (c *Client) FullDuplex() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.duplex
}

// Upload returns both ends of a request body that is sent in pieces: what the
// client writes to, and what the server reads, under the read deadline.
func (c *Client) Upload() (client io.WriteCloser, server io.ReadCloser) {
	client, c.upload = net.Pipe()
	return client, c.upload
}

// Status is the status of the response, 0 while there is none.
func (c *Client) Status() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Informed is the informational statuses (1xx) that came.
func (c *Client) Informed() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int(nil), c.informed...)
}

// Got is the header of the response as it was sent.
func (c *Client) Got() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// Body is what has come to the client.
func (c *Client) Body() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.body[:c.flushed])
}

// Arrivals is what has come to the client, and when.
func (c *Client) Arrivals() []Arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Arrival(nil), c.arrivals...)
}

// Writes is the sizes of the writes to the client, in bytes.
func (c *Client) Writes() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int(nil), c.sizes...)
}

// Deadlines is the write deadlines that were set, as the time that was left; 0
// for one that was cleared.
func (c *Client) Deadlines() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Duration(nil), c.deadline...)
}

// Heartbeats is how many heartbeats have come.
func (c *Client) Heartbeats() int { return strings.Count(c.Body(), ": ping\n") }

// Interface guard
var _ http.ResponseWriter = (*Client)(nil)
