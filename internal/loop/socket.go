package loop

// socket is the way from a connection to its client. Of its methods, only
// interrupt may be called by another goroutine than the one that has the turn.
type socket interface {
	// schedule gives the connection a turn.
	schedule(c *Conn)
	// write writes what the client takes. Without an error, fewer bytes than
	// there are mean that the socket would block.
	write(w *writer, p []byte) (int, error)
	// arm asks for a signal when the client has closed the connection, and if
	// wanted when the socket takes bytes again.
	arm(writable bool) error
	// unacked returns how many bytes the socket has taken and the client has
	// not acknowledged.
	unacked() int
	// interrupt makes a write that is under way return.
	interrupt()
	// closeWrite tells the client that nothing more comes. It reports whether
	// the connection still has to be closed.
	closeWrite() bool
	// detach leaves the connection to somebody else, and returns what was read
	// from it.
	detach() []byte
	close()
}

// readiness is what the watch has seen of one connection.
type readiness struct {
	id      uint64
	signals uint32
}
