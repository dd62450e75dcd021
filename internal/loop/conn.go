package loop

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Task says what the client of a parked connection is due. Its methods are
// called by one goroutine at a time and must not block. A Step that panics
// drops its connection.
type Task interface {
	// Step appends to b what the client is due now, without reading what is
	// in b, and returns it together with what comes next. It is called after
	// every Wake, once for any number of them, and after the socket has taken
	// what it held up. It should append no more than some 32 KiB, which is what
	// a client that stops reading costs at most, and return Again where that is
	// not all.
	Step(c *Conn, b []byte) ([]byte, Next)
	// Ended is called once, when the connection is no longer the task's: after
	// the last Step, also where there was none. err says more where the reason
	// is none that Step gave.
	Ended(c *Conn, reason Reason, err error)
}

// Next is what follows a Step once the socket has taken its bytes.
type Next uint8

const (
	// Wait parks the connection until the next Wake.
	Wait Next = iota
	// Again asks for another Step, after those of the connections that wait
	// for theirs.
	Again
	// End ends the body as a whole one. The client may use the connection for
	// its next request.
	End
	// Abort closes the connection behind what was written, without the chunk
	// that ends a body: no client takes that for a good end.
	Abort
)

// Reason is why a connection is no longer its task's.
type Reason uint8

const (
	Finished Reason = iota // Step said End, and all was written
	Aborted                // Step said Abort, and all was written
	Left                   // the client has closed the connection, or it broke
	Stalled                // the client has taken nothing for as long as it may
	Dropped                // Drop, Shutdown, or a panic in Step
)

var (
	// ErrLeft is the error of a connection whose client has closed it.
	ErrLeft = errors.New("the client has closed the connection")
	// ErrStalled is the error of a connection whose client takes nothing.
	ErrStalled = errors.New("the client has taken nothing for too long")
	// ErrDropped is the error of a connection that was dropped.
	ErrDropped = errors.New("the connection was dropped")
)

// lingering is how long a connection that we have closed for writing stays open
// for the client to read the end. With bytes of the client unread, closing
// it at once could destroy what it has not read yet.
const lingering = 500 * time.Millisecond

// Conn is a parked connection.
type Conn struct {
	loop   *Loop
	id     uint64
	socket socket
	net    net.Conn      // as the server knows it; nil where the server does not get it back
	server *http.Server  // which gets it back
	early  []byte        // what was read of the client's next request
	stall  time.Duration // how long the client may take nothing; 0 is for ever
	next   *Conn         // in the queue, whose lock guards it

	state   atomic.Uint32 // one of the states below
	signals atomic.Uint32 // what has happened since the last turn
	sent    atomic.Int64

	// The fields below belong to the goroutine that has the turn.
	task     Task // nil once it has been told the end
	phase    phase
	returned bool        // the handler has
	rest     *rest       // of what the last step gave; nil where the socket has taken all
	timer    *time.Timer // nil until one is needed
}

// States of a connection: whose turn it is.
const (
	idle    uint32 = iota // nobody's
	queued                // it waits for its turn
	running               // it has its turn
	again                 // it has its turn, and something has happened meanwhile
)

// Signals: what has happened.
const (
	wake     uint32 = 1 << iota // the task may have something
	writable                    // the socket takes bytes again
	gone                        // the client has closed the connection
	dropped                     // we want to be rid of it
	alarm                       // the timer has fired
	returned                    // the handler has
)

// phase is how far a connection has come.
type phase uint8

const (
	streaming phase = iota // its task has it
	complete               // the body has ended, and the handler has yet to return
	closing                // we have closed it for writing
	over                   // the loop no longer has it
)

// rest is what the socket has not taken yet.
type rest struct {
	data    []byte
	payload int  // how many bytes of data are the task's; they come first
	next    Next // what follows
	since   time.Time
	unacked int // how many bytes the client had not taken then, as far as the socket knows
}

// Wake says that the task may have something for the client. It never blocks
// and calls nothing of the task's, so that any lock may be held.
func (c *Conn) Wake() { c.signal(wake) }

// WakeIn wakes the connection in d, instead of when an earlier call said; a
// socket that holds bytes up may take the alarm away, but is followed by a Step
// anyhow. It is for Step to call.
func (c *Conn) WakeIn(d time.Duration) { c.setTimer(d) }

// Drop ends the connection at once, whatever the client has not taken yet, so
// that no client takes it for a good end. It does not wait.
func (c *Conn) Drop() { c.signal(dropped) }

// Sent returns how many bytes of the body the socket has taken.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// signal says that something has happened, and gives the connection a turn.
func (c *Conn) signal(bits uint32) {
	c.signals.Or(bits)
	if bits&(gone|dropped) != 0 {
		c.socket.interrupt()
	}
	for {
		switch c.state.Load() {
		case idle:
			if c.state.CompareAndSwap(idle, queued) {
				c.socket.schedule(c)
				return
			}
		case running:
			if c.state.CompareAndSwap(running, again) {
				return
			}
		default: // whoever has the turn next sees the signal
			return
		}
	}
}

// turn deals with what has happened.
func (c *Conn) turn(w *writer) {
	c.state.Store(running)
	c.act(w, c.signals.Swap(0))
	if !c.state.CompareAndSwap(running, idle) {
		c.state.Store(queued)
		c.socket.schedule(c)
	}
}

func (c *Conn) act(w *writer, signals uint32) {
	if signals&returned != 0 {
		c.returned = true
	}
	switch {
	case c.phase == over:
	case signals&gone != 0:
		c.cut(Left, ErrLeft)
	case signals&dropped != 0:
		c.cut(Dropped, ErrDropped)
	case c.phase == complete:
		c.handBack()
	case c.phase == closing:
		if signals&alarm != 0 {
			c.close()
		}
	case c.rest != nil:
		c.unblock(w, signals)
	case signals&^returned != 0:
		c.step(w)
	}
}

// step writes what the client is due.
func (c *Conn) step(w *writer) {
	b, next, err := c.callStep(w.buf[:headRoom])
	if err != nil {
		c.cut(Dropped, err)
		return
	}
	payload := len(b) - headRoom
	b, at, head := frame(b)
	if next == End {
		b = append(b, lastChunk...)
	}
	w.buf = b
	chunk := b[at:]
	n, err := c.write(w, chunk, head, payload)
	switch {
	case err != nil:
		c.fail(err)
	case n < len(chunk):
		left := payload - min(max(n-head, 0), payload)
		c.block(&rest{data: bytes.Clone(chunk[n:]), payload: left, next: next})
	default:
		c.proceed(next)
	}
}

// callStep calls the task. A panic of it is an error.
func (c *Conn) callStep(b []byte) (out []byte, next Next, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v\n%s", ErrDropped, v, debug.Stack())
		}
	}()
	out, next = c.task.Step(c, b)
	return out, next, nil
}

// write gives the socket bytes, of which payload, after the first head, are the
// task's. It returns how many the socket has taken.
func (c *Conn) write(w *writer, p []byte, head, payload int) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.socket.write(w, p)
	if taken := min(n-head, payload); taken > 0 {
		c.sent.Add(int64(taken))
	}
	return n, err
}

// proceed does what follows a step whose bytes are written.
func (c *Conn) proceed(next Next) {
	switch next {
	case Wait:
	case Again:
		c.signal(wake)
	case End:
		c.finish()
	case Abort:
		c.ended(Aborted, nil)
		c.closeWrite()
	}
}

// block keeps what the socket did not take.
func (c *Conn) block(r *rest) {
	c.rest = r
	c.progress()
	if err := c.socket.arm(true); err != nil {
		c.fail(err)
	}
}

// progress notes that the client takes something.
func (c *Conn) progress() {
	if c.stall > 0 {
		c.rest.since = time.Now()
		c.rest.unacked = c.socket.unacked()
		c.setTimer(c.stall)
	}
}

// unblock goes on with what the socket did not take.
func (c *Conn) unblock(w *writer, signals uint32) {
	if signals&writable == 0 {
		if signals&alarm != 0 && c.stall > 0 {
			c.checkProgress()
		}
		return
	}
	r := c.rest
	n, err := c.write(w, r.data, 0, r.payload)
	if err == nil && n == len(r.data) {
		c.rest = nil
		c.stopTimer()
		err = c.socket.arm(false)
		if err == nil {
			// The task may have been woken in the meantime.
			c.signal(wake)
			c.proceed(r.next)
		}
	} else if err == nil {
		r.data = r.data[n:]
		r.payload -= min(n, r.payload)
		if n > 0 {
			c.progress()
		}
		err = c.socket.arm(true)
	}
	if err != nil {
		c.fail(err)
	}
}

// checkProgress cuts a client that takes nothing. The socket takes bytes only
// when a good part of its buffer is free: a client that reads slowly is told by
// the bytes on their way to it, which become fewer.
func (c *Conn) checkProgress() {
	if left := c.stall - time.Since(c.rest.since); left > 0 {
		c.setTimer(left)
		return
	}
	if c.socket.unacked() >= c.rest.unacked {
		c.cut(Stalled, ErrStalled)
		return
	}
	c.progress()
}

// finish ends a body that is written to its end.
func (c *Conn) finish() {
	c.ended(Finished, nil)
	if c.net == nil {
		c.closeWrite()
		return
	}
	c.phase = complete
	c.handBack()
}

// handBack gives the connection back to its server, once the handler has
// returned: what wraps a handler may set deadlines until then.
func (c *Conn) handBack() {
	if !c.returned {
		return
	}
	conn := c.net
	if read := append(c.early, c.socket.detach()...); len(read) > 0 {
		conn = withPrefix(conn, read)
	}
	if conn.SetDeadline(time.Time{}) != nil || !c.loop.handBack(c.server, conn) {
		c.socket.close()
	}
	c.forget()
}

// fail ends a connection that has an error.
func (c *Conn) fail(err error) {
	switch {
	case c.signals.Load()&dropped != 0:
		c.cut(Dropped, ErrDropped)
	case errors.Is(err, os.ErrDeadlineExceeded) && c.signals.Load()&gone == 0:
		c.cut(Stalled, ErrStalled)
	default:
		c.cut(Left, fmt.Errorf("%w: %w", ErrLeft, err))
	}
}

// cut ends the connection at once.
func (c *Conn) cut(reason Reason, err error) {
	c.ended(reason, err)
	c.close()
}

// ended tells the task that it is over.
func (c *Conn) ended(reason Reason, err error) {
	if c.task != nil {
		c.task.Ended(c, reason, err)
		c.task = nil
	}
}

// closeWrite closes the connection behind what was written, and soon
// altogether.
func (c *Conn) closeWrite() {
	if !c.socket.closeWrite() {
		c.close()
		return
	}
	c.phase = closing
	c.setTimer(lingering)
}

func (c *Conn) close() {
	c.socket.close()
	c.forget()
}

// forget takes the connection out of the loop.
func (c *Conn) forget() {
	c.stopTimer()
	c.phase, c.net, c.early, c.rest = over, nil, nil, nil
	c.loop.remove(c)
}

func (c *Conn) setTimer(d time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(d, func() { c.signal(alarm) })
		return
	}
	c.timer.Reset(d)
}

func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
