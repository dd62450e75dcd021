package timeouts

import "time"

// fire is what the timer runs. It calls back for the deadline that has passed,
// if one has, and sets the timer for the next.
func (w *Watch) fire() {
	err, beat := w.due()
	switch {
	case err != nil:
		defer w.running.Done()
		w.expire(err)
	case beat:
		defer w.running.Done()
		w.beat()
		w.beaten()
	}
}

// due decides what fire has to do: at most one of the two. For either it has
// counted a running callback.
func (w *Watch) due() (err *TimeoutError, beat bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A timer that was about to fire when Stop came ends here.
	if w.stopped {
		return nil, false
	}
	w.armed = never
	now := w.now()
	// The timeouts come before the beat, and end the watch: a beat would
	// commit a response whose error can perhaps still be an HTTP status.
	if err := w.expired(now); err != nil {
		w.stopped = true
		w.running.Add(1)
		return err, false
	}
	if w.beatDeadline() <= now {
		beat = true
		w.beating = true
		w.running.Add(1)
	}
	// Armed before the beat is sent: a client that takes nothing must not
	// keep a timeout from its moment.
	w.armNearest(now)
	return nil, beat
}

// beaten says that the beat was sent. The caller has not called running.Done.
func (w *Watch) beaten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	w.beating = false
	// The client's silence starts at the end of the beat, which a slow client
	// may have delayed.
	w.heardAt = now
	w.arm(now, w.beatDeadline())
}

// expired returns the timeout that has passed, and of two the one that passed
// first. At the same moment the more specific one wins over Total, which may
// be what limits FirstToken. The caller holds mu.
func (w *Watch) expired(now time.Duration) *TimeoutError {
	output, total := w.outputDeadline(), deadline(0, w.limits.Total)
	switch {
	case min(output, total) > now:
		return nil
	case total < output:
		return &TimeoutError{Cause: Total, Limit: w.limits.Total}
	case w.phase == awaitFirst:
		return &TimeoutError{Cause: FirstToken, Limit: w.limits.FirstToken}
	default:
		return &TimeoutError{Cause: BetweenTokens, Limit: w.limits.BetweenTokens}
	}
}

// armNearest sets the timer for the nearest deadline. The caller holds mu.
func (w *Watch) armNearest(now time.Duration) {
	w.arm(now, min(w.outputDeadline(), deadline(0, w.limits.Total), w.beatDeadline()))
}
