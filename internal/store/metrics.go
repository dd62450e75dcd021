package store

import "time"

// Metrics is told what a Replica and its Store do. It is called often, from many
// goroutines, and must not block.
type Metrics interface {
	// Call tells of a call of the store: its name (begin, announce, append,
	// finish, discard, find, find_key, read, followed, cancel, channel, subscribe,
	// beat), how long it took, and its error. ErrUnknown and the like are
	// answers, and none.
	Call(name string, took time.Duration, err error)
	// Batch tells of a batch that was written.
	Batch(events, bytes int)
	// Lag tells how long after its sending a batch came to a follower of
	// another replica, by the two clocks.
	Lag(d time.Duration)
	// Local tells that so many more (or fewer) responses are local only,
	// because the store does not take them.
	Local(delta int)
	// Incomplete tells of a response whose copy will never be complete.
	Incomplete()
}

// NopMetrics drops everything.
type NopMetrics struct{}

// Call implements Metrics.
func (NopMetrics) Call(string, time.Duration, error) {}

// Batch implements Metrics.
func (NopMetrics) Batch(int, int) {}

// Lag implements Metrics.
func (NopMetrics) Lag(time.Duration) {}

// Local implements Metrics.
func (NopMetrics) Local(int) {}

// Incomplete implements Metrics.
func (NopMetrics) Incomplete() {}

// Interface guards
var _ Metrics = NopMetrics{}
