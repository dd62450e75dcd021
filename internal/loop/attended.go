package loop

import (
	"errors"
	"net"
	"os"
	"time"
)

// attended is a connection that no poller watches. It has a goroutine for its
// turns, which may wait for the client, and one that reads, to see it leave.
type attended struct {
	c     *Conn
	conn  net.Conn
	turns chan struct{}

	stop  chan struct{} // closed for the reader to stop
	ended chan struct{} // closed when it has
	read  []byte        // what it has read; for who has seen it end
}

func newAttended(c *Conn, conn net.Conn) *attended {
	return &attended{
		c: c, conn: conn,
		turns: make(chan struct{}, 1),
		stop:  make(chan struct{}), ended: make(chan struct{}),
	}
}

// start gives the connection its goroutines.
func (s *attended) start(l *Loop) {
	l.goroutines.Go(s.serve)
	l.goroutines.Go(s.watch)
}

// serve is the connection's own writer.
func (s *attended) serve() {
	w := newWriter()
	for range s.turns {
		s.c.turn(w)
		w.trim()
		if s.c.phase == over {
			return
		}
	}
}

// watch reads until the client leaves or says something, which is for the
// connection's next request.
func (s *attended) watch() {
	defer close(s.ended)
	var b [1]byte
	for {
		n, err := s.conn.Read(b[:])
		select {
		case <-s.stop:
			s.read = b[:n]
			return
		default:
		}
		switch {
		case n > 0:
			s.read = b[:n]
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // a deadline that the handler has left
			_ = s.conn.SetReadDeadline(time.Time{})
		case err != nil:
			s.c.signal(gone)
			return
		}
	}
}

func (s *attended) schedule(*Conn) {
	select {
	case s.turns <- struct{}{}:
	default: // nobody takes turns any more
	}
}

// maxPiece is how many bytes of one write count as progress.
const maxPiece = 16 << 10

func (s *attended) write(_ *writer, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		var deadline time.Time
		if s.c.stall > 0 {
			deadline = time.Now().Add(s.c.stall)
		}
		if err := s.conn.SetWriteDeadline(deadline); err != nil {
			return n, err
		}
		// An interrupt after this sets a deadline after ours.
		if s.c.signals.Load()&(gone|dropped) != 0 {
			return n, os.ErrDeadlineExceeded
		}
		m, err := s.conn.Write(p[n:min(n+maxPiece, len(p))])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *attended) arm(bool) error { return nil }

func (s *attended) unacked() int { return 0 }

func (s *attended) interrupt() { _ = s.conn.SetWriteDeadline(time.Unix(1, 0)) }

func (s *attended) closeWrite() bool { return false }

func (s *attended) detach() []byte {
	close(s.stop)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	<-s.ended
	return s.read
}

func (s *attended) close() { _ = s.conn.Close() }
