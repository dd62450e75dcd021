// Package fanout keeps the output of one response as an append-only log that
// any number of clients read, each at its own position.
//
// The invariant: one log, many cursors. An event is stored once and never
// changes; a client is a position in the log, not a queue of copies. Appending
// copies nothing for a client and waits for none, so that no reader can delay
// the producer or another reader, and what a reader has missed is a slice of
// the log. The same holds for a channel: it is a log that refers to the logs of
// its responses, and its reader is one number.
//
// A Registry finds the responses of the process again: by id, by idempotency
// key, and by channel. It decides how long a log lives, and bounds what all of
// them hold together. A log alone (Stream) knows nothing of it.
//
// Positions are indexes: the events of a response are numbered from 1 without
// gaps, and index 0 is the position before the first.
//
// # Locks
//
// A lock is only ever taken after those above it:
//
//  1. that of the Registry: what can be found, and what goes when
//  2. that of a Response, which is the one of its log
//  3. that of a channel: its order
//
// Nothing is called with a lock held but Spec.Ending, and nothing is waited for.
// An append takes the lock of its response and that of its channel. It takes the
// Registry's only where it finds that everything together has become too large.
package fanout
