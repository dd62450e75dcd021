package loop

// What the package's tests look at from outside.
var (
	Frame   = frame
	Release = release
)

const HeadRoom = headRoom

// Polled reports whether a connection has no goroutine of its own.
func Polled(c *Conn) bool {
	_, own := c.socket.(*attended)
	return !own
}
