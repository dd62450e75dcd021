// Package loop runs the client side of many HTTP/1.1 responses on a few
// goroutines. A handler that has sent the head of its response hands the
// connection over and returns; from then on a Task says what the client is due,
// and the loop writes it as chunks of the response's body.
//
// The invariant: a connection that waits holds its socket, its Conn and
// nothing else: no goroutine, no stack, no buffer. Only a socket that has not
// taken all of the last chunk holds the rest of that chunk, and nothing that
// one client does, or fails to do, holds up another.
//
// From that follows who does what:
//
//   - Step, the method of a Task that says what is due, runs on a writer, one
//     of a few goroutines that take connections from one queue. It runs on one
//     writer at a time, and not before the socket has taken all that earlier
//     steps gave. Neither it nor the writer blocks.
//   - One goroutine watches all sockets and does nothing but put connections
//     into the queue: for one that the client has closed, or that takes bytes
//     again. It waits in the runtime's poller, not in a thread of its own, and
//     knows connections by number: a file descriptor may be another's by the
//     time of an event.
//   - Whoever has something for a client calls Wake, which never blocks and
//     never calls back, so that it may be called with locks held.
//
// A connection whose socket cannot be reached (one that a listener wrapped in
// something unknown), and every connection elsewhere than on Linux, has two
// goroutines of its own instead; all else is the same.
//
// Lock order: Loop.mu, then that of the queue. No lock is held while a Task is
// called.
package loop
