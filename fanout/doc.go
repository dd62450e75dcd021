// Package fanout keeps the output of one response as an append-only log that
// any number of clients read, each at its own place.
//
// The invariant: one log, many cursors. An event is stored once and never
// changes; a client is a position in the log and not a queue of copies.
// Appending copies nothing for a client and waits for none, so that no reader
// can delay the producer or another reader, and what a reader has missed is a
// slice of the log.
//
// A Registry finds the logs of the process again: by response id, by idempotency
// key, and by the channel that announces them. It decides how long a log lives;
// a log alone (Stream) knows nothing of it.
//
// Positions are indexes: the events of a response are numbered from 1 without
// gaps, and index 0 is the place before the first.
package fanout
