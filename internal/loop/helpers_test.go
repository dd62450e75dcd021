package loop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// kinds are the ways in which a connection may be served.
var kinds = map[string]func(*httptest.Server){
	"plain":         func(s *httptest.Server) { s.Start() },
	"TLS":           func(s *httptest.Server) { s.StartTLS() },
	"wrapped":       func(s *httptest.Server) { s.Listener = opaque{s.Listener}; s.Start() },
	"TLS over that": func(s *httptest.Server) { s.Listener = opaque{s.Listener}; s.StartTLS() },
}

// eachKind runs a test for each of them.
func eachKind(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) { test(t, newSite(t, start)) })
	}
}

// opaque is a listener whose connections hide their socket.
type opaque struct{ net.Listener }

func (l opaque) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{conn}, nil
}

// site is a server whose handler parks every connection.
type site struct {
	tb      testing.TB
	loop    *loop.Loop
	server  *httptest.Server
	options loop.Options
	begin   func(w http.ResponseWriter, r *http.Request) // sends the head
	parked  chan *feed                                   // what was taken
	refused chan error                                   // what was not
}

// newSite starts one. What it is to do may be set until the first request.
func newSite(tb testing.TB, start func(*httptest.Server)) *site {
	tb.Helper()
	s := &site{
		tb: tb, loop: loop.New(),
		options: loop.Options{BodyRead: true},
		begin: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
		},
		parked:  make(chan *feed, 20000),
		refused: make(chan error, 16),
	}
	s.server = httptest.NewUnstartedServer(s)
	start(s.server)
	tb.Cleanup(func() {
		s.server.Client().CloseIdleConnections()
		_ = s.shutdown(0)
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// shutdown ends the loop and gives its connections so much time.
func (s *site) shutdown(d time.Duration) error {
	if s.loop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	err := s.loop.Shutdown(ctx)
	s.loop = nil
	return err
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.begin(w, r)
	f := &feed{ended: make(chan end, 1)}
	c, err := s.loop.Take(w, r, f, s.options)
	if err != nil {
		s.refused <- err
		return
	}
	f.conn = c
	s.parked <- f
}

// next returns the connection that was parked next.
func (s *site) next() *feed {
	s.tb.Helper()
	select {
	case f := <-s.parked:
		return f
	case err := <-s.refused:
		s.tb.Fatal(err)
	case <-time.After(patience):
		s.tb.Fatal("no request came")
	}
	panic("unreachable")
}

// await returns what comes out of a channel.
func await[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		tb.Fatal("nothing came")
		panic("unreachable")
	}
}

// get sends a request.
func (s *site) get() *http.Response {
	s.tb.Helper()
	req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodGet, s.server.URL, http.NoBody)
	if err != nil {
		s.tb.Fatal(err)
	}
	resp, err := s.server.Client().Do(req)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { resp.Body.Close() })
	return resp
}

// dial opens a connection on which the test itself speaks.
func (s *site) dial() net.Conn {
	s.tb.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String()) //nolint:noctx // of this machine
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { conn.Close() })
	if s.server.TLS != nil {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test's
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.tb.Fatal(err)
	}
	return conn
}

// send writes a request and reads the head of the response.
func send(tb testing.TB, conn net.Conn, request string) *bufio.Reader {
	tb.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		tb.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			tb.Fatal(err)
		}
		if line == "\r\n" {
			return r
		}
	}
}

const getRequest = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// end is how a connection has ended.
type end struct {
	reason loop.Reason
	err    error
}

// feed is a task that a test fills.
type feed struct {
	conn  *loop.Conn
	ended chan end
	step  func(c *loop.Conn) // called before each step, where it is set

	mu sync.Mutex
	// The fields below are guarded by mu.
	pieces [][]byte // one for each step
	last   loop.Next
	steps  int
}

// say adds a piece.
func (f *feed) say(format string, args ...any) {
	f.add(fmt.Appendf(nil, format, args...))
}

func (f *feed) add(piece []byte) {
	f.mu.Lock()
	f.pieces = append(f.pieces, piece)
	f.mu.Unlock()
	f.conn.Wake()
}

// finish says what follows the last piece.
func (f *feed) finish(next loop.Next) {
	f.mu.Lock()
	f.last = next
	f.mu.Unlock()
	f.conn.Wake()
}

// Step implements loop.Task.
func (f *feed) Step(c *loop.Conn, b []byte) ([]byte, loop.Next) {
	if f.step != nil {
		f.step(c)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps++
	if len(f.pieces) == 0 {
		return b, f.last
	}
	b = append(b, f.pieces[0]...)
	if f.pieces = f.pieces[1:]; len(f.pieces) > 0 {
		return b, loop.Again
	}
	return b, f.last
}

// Ended implements loop.Task.
func (f *feed) Ended(_ *loop.Conn, reason loop.Reason, err error) {
	f.ended <- end{reason, err}
}

// expect waits for the end.
func (f *feed) expect(tb testing.TB, reason loop.Reason, err error) {
	tb.Helper()
	if e := await(tb, f.ended); e.reason != reason || !errors.Is(e.err, err) {
		tb.Fatalf("ended for reason %d with %v, want %d with %v", e.reason, e.err, reason, err)
	}
}
