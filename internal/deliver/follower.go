package deliver

import (
	"bufio"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Follower reads a log for one client. It belongs to one goroutine.
type Follower struct {
	*Conn
	cursor    *fanout.Cursor
	pace      Pace
	replaying bool // the client has not been at the head of the log yet
	stuck     bool // the connection has held the last write up
	outgrown  bool // the response is more than the client's dialect can hold
}

// NewFollower returns a follower that begins where the cursor stands.
func NewFollower(c *Conn, cursor *fanout.Cursor, pace Pace) *Follower {
	pace.Policy = pace.policyOf(c.Dialect)
	return &Follower{Conn: c, cursor: cursor, pace: pace}
}

// Policy is what is done about the client where it is slow.
func (f *Follower) Policy() Policy { return f.pace.Policy }

// Replaying says that the client begins before the head of the log: what it
// lags is merged, and does not make it slow.
func (f *Follower) Replaying() { f.replaying = true }

// Changed returns a channel that is closed when Step has something to do.
func (f *Follower) Changed() <-chan struct{} { return f.cursor.Changed() }

// AtEnd reports whether the client has had the terminal event.
func (f *Follower) AtEnd() bool { return f.cursor.Ended() }

// Lag is how many events the client has not been sent.
func (f *Follower) Lag() int { return f.cursor.Lag() }

// Over reports whether nothing more goes to the client: it has the end of the
// response, or was told to reconnect, or is to be refused.
func (f *Follower) Over() bool { return f.state.over() || f.failure != nil }

// Outgrown reports whether the response has ended for this client because it is
// more than its dialect can hold; for others it may go on.
func (f *Follower) Outgrown() bool { return f.outgrown }

// ErrSlowClient ends the connection of a client that takes too little.
var ErrSlowClient = errors.New("the client takes too little")

// patience is how long a write may take before it is the connection that holds
// the client up. One that lags for another reason (a backend says much at once,
// this machine is busy) loses nothing by it.
const patience = 50 * time.Millisecond

// Step writes what the client has not had yet, or does with a slow client what
// is to be done. After an error the connection must be aborted.
func (f *Follower) Step() error {
	batch := f.cursor.Read()
	lags := !f.replaying && f.pace.lags(&batch)
	lost := batch.Skipped > 0
	switch {
	case batch.Len() == 0 && !lost:
		return nil
	case f.pace.Policy == SlowDrop && (lost || lags && f.stuck):
		return f.skip(&batch)
	case f.pace.Policy == SlowDisconnect && (lost || lags && f.stuck):
		return f.disconnect()
	case lost:
		return fanout.ErrForgotten // never a silent gap
	}
	merge := lags && f.pace.Policy == SlowCoalesce
	if merge {
		f.Metrics.SlowClient(event.SlowCoalesced)
	}
	err := f.send(&batch, f.replaying || merge)
	f.replaying = f.replaying && f.cursor.Lag() > f.pace.Events
	return err
}

// send writes a batch, and notes whether the connection has held it up, where
// that decides what becomes of a client that lags.
func (f *Follower) send(batch *fanout.Batch, merge bool) error {
	timed := f.pace.Policy == SlowDrop || f.pace.Policy == SlowDisconnect
	var begin time.Time
	if timed {
		begin = time.Now()
	}
	err := f.write(func(bw *bufio.Writer) bool { return f.encodeLocked(bw, batch, merge) })
	f.stuck = timed && time.Since(begin) > patience
	return err
}

// maxMerge is how much text a merged frame holds, in bytes as written: readers of
// lines give up at 64 KiB, and the index of a slow client must move.
const maxMerge = 32 << 10

// encodeLocked encodes the batch and reports whether there is something to send.
// Where the response has failed and nothing is committed yet, there is not: the
// failure is kept for Conclude. f.mu must be held.
func (f *Follower) encodeLocked(bw *bufio.Writer, batch *fanout.Batch, merge bool) bool {
	bound := 0
	if merge {
		bound = maxMerge
	}
	for {
		index, ev, ok := batch.Next(bound)
		if !ok {
			f.position.Store(int64(f.cursor.Index()))
			return true
		}
		if !f.state.committed() && f.failsLocked(&ev) {
			f.cursor.Advance(index)
			return false
		}
		f.commitLocked(false)
		f.encodeEventLocked(bw, index, ev)
		f.cursor.Advance(index)
		if f.state.over() {
			return true
		}
	}
}

// encodeEventLocked encodes one event. f.mu must be held.
func (f *Follower) encodeEventLocked(bw *bufio.Writer, index int, ev event.Event) {
	if f.scratch.Kind == 0 {
		f.introduceLocked()
	}
	f.scratch = ev
	f.encoder.Encode(bw, index, &f.scratch)
	if err := emit.Failure(f.encoder); err != nil {
		f.scratch = event.Event{Kind: event.Failed, Err: err}
		f.outgrown = true
	}
	if f.scratch.Kind.IsTerminal() {
		f.state.move(ended)
		f.aborts = emit.Aborts(f.encoder, &f.scratch) ||
			f.scratch.Kind == event.Failed && f.scratch.Err.Code == event.CodeDraining
	}
}

// introduceLocked tells the encoder what is known once there is a first event.
// f.mu must be held.
func (f *Follower) introduceLocked() {
	if ms, ok := f.encoder.(emit.ModelSetter); ok && f.Model != nil {
		ms.SetModel(f.Model())
	}
	if us, ok := f.encoder.(emit.UsageSetter); ok && f.Usage != nil {
		us.SetUsage(f.Usage())
	}
}

// failsLocked reports whether an event ends the response in a way that is told by
// a status, and keeps it as the failure. f.mu must be held.
func (f *Follower) failsLocked(ev *event.Event) bool {
	switch {
	case ev.Kind == event.Failed:
		f.failure = ev.Err
	case ev.Kind == event.Done && ev.Result.Finish == event.FinishCancelled:
		f.failure = ErrCancelledEarly.Answer
	}
	return f.failure != nil
}

// ErrCancelledEarly is the answer to a request whose response was cancelled
// before it had begun.
var ErrCancelledEarly = &RefusalError{Answer: &event.Error{
	Code: event.CodeCancelled, Status: event.StatusClientClosedRequest, Message: "the response was cancelled",
}}

// skip leaves out what the client has missed, says so, and goes on at the head
// of the log.
func (f *Follower) skip(batch *fanout.Batch) error {
	dropped := batch.Skip()
	f.Metrics.SlowClient(event.SlowDropped)
	return f.write(func(bw *bufio.Writer) bool {
		f.commitLocked(false)
		if dropped > 0 {
			f.cursor.Advance(f.cursor.Index() + dropped)
			if text, ok := f.encoder.(*emit.Text); ok {
				text.Gap(bw, f.cursor.Index(), dropped)
			}
		}
		return f.encodeLocked(bw, batch, false)
	})
}

// disconnect sends a slow client away, with a reconnect frame where it can come
// back.
func (f *Follower) disconnect() error {
	f.Dismiss()
	if !f.pace.Resumable || !f.Reconnect(event.ReasonSlowClient) {
		return ErrSlowClient
	}
	return f.err
}

// Dismiss notes that the client is sent away because it is slow. It may be
// called from any goroutine.
func (c *Conn) Dismiss() {
	if !c.dismissed.Swap(true) {
		c.Metrics.SlowClient(event.SlowDisconnected)
	}
}

// GiveUp ends a client whose response turned out to be none.
func (f *Follower) GiveUp(why *event.Event) error {
	return f.write(func(bw *bufio.Writer) bool {
		f.commitLocked(false)
		f.encodeEventLocked(bw, f.cursor.Index()+1, *why)
		return true
	})
}

// Reconnect tells the client to come back. It reports false where its dialect
// has no frame for that.
func (f *Follower) Reconnect(reason event.Reason) bool {
	if f.Dialect != emit.DialectText {
		return false
	}
	f.Metrics.Reconnect(reason)
	_ = f.write(func(bw *bufio.Writer) bool {
		f.commitLocked(false)
		if text, ok := f.encoder.(*emit.Text); ok {
			text.Reconnect(bw, f.cursor.Index(), f.Retry(), string(reason))
		}
		f.state.move(away)
		return true
	})
	return true
}

// Failed reports whether a write to the client has failed.
func (c *Conn) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// farewell is how long an aborted stream on HTTP/2 or HTTP/3 stays open after
// its last frame: clients forget what they have not read when it is reset.
const farewell = 20 * time.Millisecond

// Abort aborts the client's connection, so that it does not take the end for a
// good one. It does not return.
func (c *Conn) Abort() {
	if c.multiplexed {
		time.Sleep(farewell)
	}
	panic(http.ErrAbortHandler)
}

// Conclude ends the client's request after its response: with a status where it
// has failed before anything was sent, and with an aborted connection where the
// client must not take the end for a good one.
func (f *Follower) Conclude(r *http.Request, aborted bool) {
	switch {
	case f.failure != nil:
		f.refuse(r)
	case aborted || f.aborts:
		f.Abort()
	}
}

// refuse answers with the failure of a response that has sent nothing.
func (f *Follower) refuse(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.move(ended)
	refusal := &RefusalError{Answer: f.failure, Reason: event.ReasonExit}
	if f.failure.Code == event.CodeDraining && f.Retry != nil {
		refusal.RetryAfter = f.Retry()
	}
	refusal.Write(f.w, r, f.Dialect, f.Config.ResponseID)
}

// Adopt takes over the header fields that a handler has set without sending a
// response: error routes see them.
func (c *Conn) Adopt(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if header != nil && !c.state.committed() {
		replaceHeader(c.w.Header(), header)
	}
}
