package loop

import (
	"crypto/tls"
	"net"
	"sync"
)

// feeder is a listener whose connections are those that a server gets back.
type feeder struct {
	ready chan struct{} // gets a value for Accept to look

	mu sync.Mutex
	// The fields below are guarded by mu.
	conns  []net.Conn
	closed bool
}

func newFeeder() *feeder { return &feeder{ready: make(chan struct{}, 1)} }

// give reports whether the server takes the connection.
func (f *feeder) give(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.conns = append(f.conns, conn)
	f.look()
	return true
}

func (f *feeder) look() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// Accept implements net.Listener.
func (f *feeder) Accept() (net.Conn, error) {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return nil, net.ErrClosed
		}
		if len(f.conns) > 0 {
			conn := f.conns[0]
			f.conns[0] = nil
			if f.conns = f.conns[1:]; len(f.conns) == 0 {
				f.conns = nil
			}
			f.mu.Unlock()
			return conn, nil
		}
		f.mu.Unlock()
		<-f.ready
	}
}

// Close implements net.Listener.
func (f *feeder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
	f.look()
	return nil
}

// Addr implements net.Listener.
func (f *feeder) Addr() net.Addr { return feederAddr{} }

type feederAddr struct{}

func (feederAddr) Network() string { return "loop" }
func (feederAddr) String() string  { return "connections between two requests" }

// prefixed is a connection from which something was read already.
type prefixed struct {
	net.Conn
	prefix []byte // of one reader at a time, as net/http reads
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.prefix)
	if p.prefix = p.prefix[n:]; len(p.prefix) == 0 {
		p.prefix = nil
	}
	return n, nil
}

// takeOff ends the wrapping, and returns what is still to be read.
func (p *prefixed) takeOff() (net.Conn, []byte) { return p.Conn, p.prefix }

// prefixedTLS is one with TLS, of which net/http asks the state.
type prefixedTLS struct{ prefixed }

// ConnectionState returns that of the connection.
func (p *prefixedTLS) ConnectionState() tls.ConnectionState {
	return p.Conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
}

// withPrefix returns conn with read before what comes from it.
func withPrefix(conn net.Conn, read []byte) net.Conn {
	p := prefixed{Conn: conn, prefix: read}
	if _, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return &prefixedTLS{p}
	}
	return &p
}
