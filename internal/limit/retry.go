package limit

import (
	"math"
	"time"
)

// The bounds of RetryAfter. The header knows no less than a second, and the
// SDKs of OpenAI and Anthropic heed no more than a minute.
const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
)

// RetryAfter estimates when a request of this key that was turned away could
// get a place, in whole seconds from 1 s to 60 s, as the Retry-After header
// has them. It is the number of places that must become free, first for those
// that wait, over the rate at which places have become free lately.
func (l *Limiter) RetryAfter(key string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding.advance(time.Now(), l.active)
	var wait time.Duration
	if !l.hasPlace() {
		needed := l.active - l.config.Max + l.waiters.Len() + 1
		wait = l.holding.until(needed, l.active)
	}
	if n := l.keys[key]; l.config.PerKey > 0 && n >= l.config.PerKey {
		wait = max(wait, l.holding.until(n-l.config.PerKey+1, n))
	}
	wait = (wait + time.Second - 1).Truncate(time.Second)
	return min(max(wait, minRetryAfter), maxRetryAfter)
}

const (
	// memory is how long the past counts: what lies this far back weighs
	// 1/e.
	memory = 5 * time.Minute
	// assumed is what one place is taken to be held for while nothing is
	// known. It weighs as much as one place that was held.
	assumed = 10 * time.Second
)

// holdingTime estimates how long a place is held: the time that places were
// held, all together, over the number of those that were given back, both
// fading. Two things set it apart from a plain rate of releases. It counts
// the time of places that are still held, so it grows when a backend hangs;
// and its clock stands while no place is held, so what it knows in the
// evening still holds in the morning.
type holdingTime struct {
	last  time.Time
	held  float64 // seconds, all places together
	count float64 // places given back
}

func newHoldingTime(now time.Time) holdingTime {
	return holdingTime{last: now}
}

// advance accounts for the time since the last call, in which active places
// were held.
func (h *holdingTime) advance(now time.Time, active int) {
	elapsed := now.Sub(h.last)
	h.last = now
	if active == 0 {
		return
	}
	fade := math.Exp(-elapsed.Seconds() / memory.Seconds())
	// The second term is the integral of what active places add per second
	// and of the fading of what they added.
	h.held = h.held*fade + float64(active)*memory.Seconds()*(1-fade)
	h.count *= fade
}

// ended is advance, and then one of the active places was given back.
func (h *holdingTime) ended(now time.Time, active int) {
	h.advance(now, active)
	h.count++
}

// until estimates how long it takes until n of active places are given back;
// 0 where none is held. It never exceeds maxRetryAfter.
func (h *holdingTime) until(n, active int) time.Duration {
	if active <= 0 {
		return 0
	}
	mean := (h.held + assumed.Seconds()) / (h.count + 1)
	seconds := mean * float64(n) / float64(active)
	return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}
