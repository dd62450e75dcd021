package loop

import "strconv"

const (
	// headRoom is the room before a chunk for its size: eight digits and CRLF.
	headRoom = 10
	// lastChunk ends a body. It has no trailers.
	lastChunk = "0\r\n\r\n"
	// keptBuffer is the largest buffer that a writer keeps between two steps.
	keptBuffer = 64 << 10
)

// writer is what a goroutine needs to serve connections: a buffer in which
// chunks are put together, and the call that writes, made once so that a write
// allocates nothing.
type writer struct {
	buf []byte
	call
}

// call is a system call on a socket, with what goes in and comes out.
type call struct {
	fn  func(fd uintptr) // makes the call
	p   []byte
	n   int
	err error
}

func newWriter() *writer {
	w := &writer{buf: make([]byte, 0, 4<<10)}
	w.fn = w.write
	return w
}

// trim gives up a buffer that one large step has left.
func (w *writer) trim() {
	if cap(w.buf) > keptBuffer {
		w.buf = make([]byte, 0, 4<<10)
	}
}

// frame makes a chunk of what lies behind headRoom in b. It returns b, grown,
// where in it the chunk begins, and how many bytes of the chunk stand before
// the payload. Where there is no payload, the chunk is empty.
func frame(b []byte) (framed []byte, at, head int) {
	size := len(b) - headRoom
	if size == 0 {
		return b, headRoom, 0
	}
	var digits [headRoom - 2]byte
	hex := strconv.AppendUint(digits[:0], uint64(size), 16) //nolint:gosec // a length
	at = headRoom - 2 - len(hex)
	copy(b[at:], hex)
	b[headRoom-2], b[headRoom-1] = '\r', '\n'
	return append(b, '\r', '\n'), at, headRoom - at
}
