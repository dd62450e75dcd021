package store

import "time"

// The bounds of a batch: what reaches one of them is written at once.
const (
	batchEvents = 64
	batchBytes  = 16 << 10
)

// How far apart batches are otherwise.
const (
	batchEvery    = 100 * time.Millisecond
	followedEvery = 40 * time.Millisecond
)

// Batcher decides when events are written: the first at once, and what comes
// after a pause as well; then every 100 ms, every 40 ms while another replica
// follows, and at once where there are 64 events or 16 KiB. The zero value is
// ready.
type Batcher struct {
	followed bool
	last     time.Time // of the last batch
}

// Follow tells whether another replica follows.
func (b *Batcher) Follow(followed bool) { b.followed = followed }

// Wrote tells when a batch was written.
func (b *Batcher) Wrote(now time.Time) { b.last = now }

// Wait returns how long so many events and bytes must wait, at most 0 where they
// are due. ok is false where there is nothing to write.
func (b *Batcher) Wait(now time.Time, events, bytes int) (d time.Duration, ok bool) {
	switch {
	case events <= 0:
		return 0, false
	case events >= batchEvents || bytes >= batchBytes:
		return 0, true
	case b.followed:
		return b.last.Add(followedEvery).Sub(now), true
	default:
		return b.last.Add(batchEvery).Sub(now), true
	}
}
