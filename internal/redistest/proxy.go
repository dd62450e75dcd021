package redistest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP connection that can go wrong, between a test and a server.
type Proxy struct {
	// Addr is where it listens, host and port.
	Addr string

	target  string
	listen  net.Listener
	running sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	refuse  bool
	delay   time.Duration
	stalled chan struct{} // closed when the stall is over; nil where there is none
	accepts int
}

// NewProxy starts a proxy in front of an address.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: listen.Addr().String(), target: target, listen: listen, conns: make(map[net.Conn]struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(func() {
		_ = listen.Close()
		p.Stall(false)
		p.Cut()
		p.running.Wait()
	})
	return p
}

// URL returns the proxy's address for a configuration.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.conns)
}

// Refuse cuts all connections and lets no new one through, or lets them again.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	p.mu.Unlock()
	if refuse {
		p.Cut()
	}
}

// Delay holds every piece of data back for so long, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall passes nothing on while the connections stand, or goes on.
func (p *Proxy) Stall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stall && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !stall && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Accepted returns how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepts
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.refuse {
			_ = client.Close()
			_ = server.Close()
		} else {
			p.accepts++
			p.conns[client], p.conns[server] = struct{}{}, struct{}{}
			p.running.Go(func() { p.copy(client, server) })
			p.running.Go(func() { p.copy(server, client) })
		}
		p.mu.Unlock()
	}
}

// copy passes on what one side says.
func (p *Proxy) copy(to io.WriteCloser, from io.ReadCloser) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		delay, stalled := p.delay, p.stalled
		p.mu.Unlock()
		time.Sleep(delay)
		if stalled != nil {
			<-stalled
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func splitLines(s string) []string { return strings.Split(strings.ReplaceAll(s, "\r", ""), "\n") }
