package loop

import (
	"crypto/tls"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller watches sockets through one epoll, whose own descriptor waits in the
// runtime's poller: a thread that blocked in epoll_wait would have to be
// replaced at every event.
type poller struct {
	fd   int // of file
	file *os.File
	raw  syscall.RawConn
}

// newPoller returns nil where the system has no epoll to give.
func newPoller() *poller {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil
	}
	return &poller{fd: fd, file: file, raw: raw}
}

// watch passes on what happens until the poller is closed.
func (p *poller) watch(notify func([]readiness)) {
	events := make([]unix.EpollEvent, 256)
	seen := make([]readiness, 0, len(events))
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		seen = seen[:0]
		for _, e := range events[:n] {
			seen = append(seen, readiness{id: idOf(&e), signals: signalsOf(e.Events)})
		}
		notify(seen)
	}
}

// close ends watch.
func (p *poller) close() { _ = p.file.Close() }

// control changes what is watched of the socket behind raw.
func (p *poller) control(raw syscall.RawConn, op int, id uint64, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))} //nolint:gosec // two halves of a number
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.EpollCtl(p.fd, op, int(fd), &e) }); cerr != nil {
		return cerr
	}
	return err
}

func idOf(e *unix.EpollEvent) uint64 {
	return uint64(uint32(e.Pad))<<32 | uint64(uint32(e.Fd)) //nolint:gosec // two halves of a number
}

func signalsOf(events uint32) uint32 {
	var signals uint32
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		signals |= gone
	}
	if events&unix.EPOLLOUT != 0 {
		signals |= writable
	}
	return signals
}

// stream is a socket as package net has it.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// polled is a socket that the poller watches. Its descriptor is reached through
// package net each time, which says no once it is closed.
type polled struct {
	loop   *Loop
	stream stream
	raw    syscall.RawConn
	id     uint64
	tls    *tls.Conn // nil without TLS
	record int       // with TLS, how many bytes the socket is sure to take where it takes any
	until  time.Time // with TLS, the deadline that is set
}

// poll makes the poller watch a connection. It returns nil where it cannot.
func (l *Loop) poll(conn net.Conn, id uint64) socket {
	if l.poller == nil {
		return nil
	}
	s := &polled{loop: l, id: id}
	under := conn
	if t, ok := conn.(*tls.Conn); ok {
		s.tls, under = t, t.NetConn()
	}
	var ok bool
	if s.stream, ok = under.(stream); !ok {
		return nil
	}
	var err error
	if s.raw, err = s.stream.SyscallConn(); err != nil {
		return nil
	}
	if s.tls != nil {
		s.record = s.sureRecord()
	}
	if l.poller.control(s.raw, unix.EPOLL_CTL_ADD, id, unix.EPOLLRDHUP|unix.EPOLLONESHOT) != nil {
		return nil
	}
	return s
}

func (s *polled) schedule(c *Conn) { s.loop.queue.push(c) }

func (s *polled) write(w *writer, p []byte) (int, error) {
	if s.tls != nil {
		return s.writeTLS(p)
	}
	w.p = p
	err := s.raw.Control(w.fn)
	w.p = nil
	if err != nil {
		return 0, err
	}
	return w.n, w.err
}

// write is one system call on a socket that does not block. It runs under
// RawConn.Control, not Write, which minds deadlines that are not ours.
func (w *writer) write(fd uintptr) {
	for {
		w.n, w.err = unix.Write(int(fd), w.p)
		if w.err != unix.EINTR { //nolint:errorlint // a bare number
			break
		}
	}
	w.n = max(w.n, 0)
	if w.err == unix.EAGAIN { //nolint:errorlint // a bare number
		w.err = nil
	}
}

const (
	// maxRecord is what fits into one record of TLS.
	maxRecord = 16 << 10
	// tlsPatience is how long a write of TLS may wait for the socket. It does
	// not wait unless the system is short of memory.
	tlsPatience = time.Second
)

// sureRecord returns how much the socket takes for sure where it says that it
// takes anything: at least a third of its buffer is free then, a part of which
// goes into the system's own bookkeeping.
func (s *polled) sureRecord() int {
	size := 0
	_ = s.raw.Control(func(fd uintptr) {
		size, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	})
	return min(max(size/6, 512), maxRecord)
}

// writeTLS writes no more than the socket is sure to take: a record that is
// written by half is the end of a connection of TLS.
func (s *polled) writeTLS(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if !s.takes() {
			return n, nil
		}
		// The deadline is for the worst case. It costs a system call of the
		// runtime's, so it is renewed only when it is near.
		if now := time.Now(); s.until.Sub(now) < tlsPatience {
			s.until = now.Add(2 * tlsPatience)
			if err := s.stream.SetWriteDeadline(s.until); err != nil {
				return n, err
			}
		}
		m, err := s.tls.Write(p[n:min(n+s.record, len(p))])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// takes reports whether the socket takes bytes now.
func (s *polled) takes() bool {
	ready := false
	err := s.raw.Control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds[:], 0)
		ready = err != nil || n > 0 // of an error, the write tells
	})
	return ready || err != nil
}

func (s *polled) arm(writable bool) error {
	events := uint32(unix.EPOLLRDHUP | unix.EPOLLONESHOT)
	if writable {
		events |= unix.EPOLLOUT
	}
	return s.loop.poller.control(s.raw, unix.EPOLL_CTL_MOD, s.id, events)
}

func (s *polled) unacked() int {
	n := 0
	_ = s.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

func (s *polled) interrupt() {} // no write waits

func (s *polled) closeWrite() bool {
	if s.tls != nil && s.takes() {
		_ = s.tls.CloseWrite()
	}
	return s.stream.CloseWrite() == nil
}

func (s *polled) detach() []byte {
	_ = s.loop.poller.control(s.raw, unix.EPOLL_CTL_DEL, s.id, 0)
	return nil
}

// close closes the socket below TLS, whose farewell could wait.
func (s *polled) close() { _ = s.stream.Close() }
