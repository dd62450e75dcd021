// Package timeouts watches one stream: how long the model may be silent, how
// long the whole may take, and when a client that is sent nothing needs a
// heartbeat.
//
// The invariant: a Watch reports at most one expiry, at the moment of the
// first deadline that passes, and does nothing after it.
package timeouts

import (
	"math"
	"sync"
	"time"
)

// Limits are what a Watch enforces. Zero or less turns one off.
type Limits struct {
	// FirstToken is the longest time from Begin to the first output.
	FirstToken time.Duration
	// BetweenTokens is the longest time between two outputs.
	BetweenTokens time.Duration
	// Total is the longest time from New to Stop.
	Total time.Duration
	// Heartbeat is how long the client is sent nothing until a beat is due.
	Heartbeat time.Duration
}

// phase is how far the model has come.
type phase uint8

const (
	idle         phase = iota // Begin was not called
	awaitFirst                // no output yet
	awaitNext                 // there was output
	unsupervised              // TotalOnly was called
)

// never is the moment of a deadline that is off.
const never = time.Duration(math.MaxInt64)

// Watch is the clock of one stream. It costs no goroutine: one timer is set
// for the nearest deadline. Progress moves deadlines away and leaves the timer
// as it is; when the timer fires too early for that reason, it is set again.
//
// Its methods are safe for concurrent use, never block (StopAndWait apart) and
// may be called from the callbacks. The caller must stop a Watch.
type Watch struct {
	limits Limits
	expire func(*TimeoutError)
	beat   func()
	start  time.Time // moments below are the time since then

	running sync.WaitGroup // callbacks; Add only while mu is held and stopped is false

	mu sync.Mutex
	// The fields below are guarded by mu.
	timer     *time.Timer   // nil until there is a deadline
	armed     time.Duration // when the timer fires, or never
	waitFrom  time.Duration // when the wait for output began, moved by blocked time
	blockedAt time.Duration // where the time that is still to be excluded began
	heardAt   time.Duration // when the client was last sent something
	phase     phase
	blocked   bool
	beats     bool // beats may be sent
	beating   bool // a beat is being sent
	stopped   bool
}

// New returns a Watch whose Total starts now. The callbacks run in a goroutine
// of the timer. expire is called at most once, and then nothing else is; beat
// is called for every Heartbeat of silence, one call at a time. While a beat
// is being sent, expire may come. A callback whose limits are off may be nil.
// One that uses what New returns must not rely on New having returned: Total
// may be that short.
func New(l Limits, expire func(*TimeoutError), beat func()) *Watch {
	w := &Watch{limits: l, expire: expire, beat: beat, start: time.Now(), armed: never}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm(0, deadline(0, l.Total))
	return w
}

// Begin starts FirstToken: at admission where the request asked for a stream,
// else with the upstream's headers. It has no effect after the first call or
// after output.
func (w *Watch) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == idle {
		w.phase = awaitFirst
		w.awaitOutput()
	}
}

// Output says that the model has put something out: FirstToken is met and
// BetweenTokens starts anew. It returns the time since New.
func (w *Watch) Output() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == unsupervised {
		return w.now()
	}
	w.phase = awaitNext
	w.awaitOutput()
	return w.waitFrom
}

// Wrote says that the client was sent something: its silence starts anew.
func (w *Watch) Wrote() {
	if w.limits.Heartbeat <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The deadline moves away, so the timer can stay.
	w.heardAt = w.now()
}

// Block says that from now on the upstream is not read, because a client must
// catch up first. Until Unblock no time counts against FirstToken and
// BetweenTokens; Total and the heartbeat go on. Calls do not nest. It returns
// the time since New.
func (w *Watch) Block() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if !w.blocked {
		w.blocked = true
		w.blockedAt = now
	}
	return now
}

// Unblock says that the upstream is read again. Without a Block it has no
// effect.
func (w *Watch) Unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.blocked {
		return
	}
	now := w.now()
	w.blocked = false
	w.waitFrom += now - w.blockedAt
	w.arm(now, w.outputDeadline())
}

// Delivered says that the model has put something out and the client has it:
// Output, Unblock and Wrote in one, at the cost of one.
func (w *Watch) Delivered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = false
	if w.phase != unsupervised {
		w.phase = awaitNext
		w.awaitOutput()
	}
	w.heardAt = w.waitFrom
}

// EnableHeartbeat allows beats from now on; the silence before it does not
// count. It has no effect after the first call or after TotalOnly.
func (w *Watch) EnableHeartbeat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.beats || w.phase == unsupervised {
		return
	}
	now := w.now()
	w.beats = true
	w.heardAt = now
	w.arm(now, w.beatDeadline())
}

// TotalOnly says that the response is no token stream, or none that is
// understood: from now on only Total counts. A beat that is being sent goes
// on.
func (w *Watch) TotalOnly() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = unsupervised
	w.beats = false
}

// Stop ends the watch: when it returns, no callback starts any more. One that
// is running goes on; so Stop may be called from a callback, from whatever a
// callback sets off, and under any lock.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// StopAndWait is Stop, and then it waits for callbacks that are running. It is
// for the owner of what they use. It must not be called from a callback, nor
// under a lock that one takes.
func (w *Watch) StopAndWait() {
	w.Stop()
	w.running.Wait()
}

// now returns the time since start.
func (w *Watch) now() time.Duration { return time.Since(w.start) }

// awaitOutput starts the wait for the next output. The caller holds mu.
func (w *Watch) awaitOutput() {
	now := w.now()
	w.waitFrom = now
	// Where it is blocked, only what is still to come will be excluded.
	w.blockedAt = now
	w.arm(now, w.outputDeadline())
}

// deadline returns the moment at which a limit that counts from a moment has
// passed.
func deadline(from, limit time.Duration) time.Duration {
	if limit <= 0 || limit > never-from {
		return never
	}
	return from + limit
}

// outputDeadline returns when the wait for output is over. The caller holds
// mu.
func (w *Watch) outputDeadline() time.Duration {
	switch {
	case w.blocked:
		return never
	case w.phase == awaitFirst:
		return deadline(w.waitFrom, w.limits.FirstToken)
	case w.phase == awaitNext:
		return deadline(w.waitFrom, w.limits.BetweenTokens)
	default:
		return never
	}
}

// beatDeadline returns when a beat is due. The caller holds mu.
func (w *Watch) beatDeadline() time.Duration {
	if !w.beats || w.beating {
		return never
	}
	return deadline(w.heardAt, w.limits.Heartbeat)
}

// arm sets the timer for at unless it fires before. The caller holds mu.
func (w *Watch) arm(now, at time.Duration) {
	if at >= w.armed || w.stopped {
		return
	}
	w.armed = at
	if w.timer == nil {
		w.timer = time.AfterFunc(at-now, w.fire)
	} else {
		w.timer.Reset(at - now)
	}
}
