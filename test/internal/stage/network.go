package stage

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Network passes connections on to an address, and fails when it is told to.
type Network struct {
	// Addr is where clients connect to.
	Addr string

	to      atomic.Pointer[string]
	running sync.WaitGroup

	mu    sync.Mutex
	conns map[*line]struct{}
}

// line is one connection of a client.
type line struct {
	client, server net.Conn
	frozen         atomic.Bool // what comes from the server is lost, and neither side is told
}

func (l *line) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// cut ends the line with a reset, not a goodbye.
func (l *line) cut() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	l.close()
}

// NewNetwork returns a network that leads to an address, until the test ends.
func NewNetwork(tb testing.TB, to string) *Network {
	tb.Helper()
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	n := &Network{Addr: ln.Addr().String(), conns: make(map[*line]struct{})}
	n.Lead(to)
	n.running.Go(func() { n.accept(ln) })
	tb.Cleanup(func() {
		_ = ln.Close()
		n.Cut()
		n.running.Wait()
	})
	return n
}

// Lead makes new connections lead to another address.
func (n *Network) Lead(to string) { n.to.Store(&to) }

// Cut resets every connection that there is, and returns how many there were.
func (n *Network) Cut() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.conns {
		l.cut()
	}
	return len(n.conns)
}

// Freeze makes every connection that there is go silent, as one does whose
// phone has changed its network.
func (n *Network) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.conns {
		l.frozen.Store(true)
	}
}

func (n *Network) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", *n.to.Load()) //nolint:noctx // on this machine
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &line{client: client, server: server}
		n.mu.Lock()
		n.conns[l] = struct{}{}
		n.mu.Unlock()
		n.running.Go(func() { n.carry(l) })
	}
}

// carry passes bytes on, both ways, until one side ends.
func (n *Network) carry(l *line) {
	var upload sync.WaitGroup
	upload.Go(func() {
		pass(l.server, l.client, new(atomic.Bool))
		l.close()
	})
	pass(l.client, l.server, &l.frozen)
	l.close()
	upload.Wait()
	n.mu.Lock()
	delete(n.conns, l)
	n.mu.Unlock()
}

// pass copies from one connection to the other until one of them ends.
func pass(dst, src net.Conn, frozen *atomic.Bool) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 && !frozen.Load() {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
