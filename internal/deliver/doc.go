// Package deliver is the way to one client: the connection, and the follower
// that reads a log for it.
//
// The invariant: whatever writes to a client holds the lock of its Conn, and
// nothing else ever waits for that lock, so that a client which takes nothing
// holds up only itself. A Follower's Step takes what is new in the log, leaves
// it with the connection and returns; when to call it again is the caller's
// business.
package deliver
