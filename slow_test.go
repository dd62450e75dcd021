package llmstream_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// smallBuffer is what the socket of a stalled client takes, in bytes: more than
// a segment of the loopback interface, with less of which TCP crawls.
const smallBuffer = 128 << 10

// stalled is a client that has sent its request and reads nothing until it is
// told to. Its socket takes little.
type stalled struct {
	net.Conn
	r *bufio.Reader
}

func stall(t *testing.T, c *rig.Caddy, q request) *stalled {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	if err := q.build(t, c).Write(conn); err != nil {
		t.Fatal(err)
	}
	return &stalled{conn, bufio.NewReaderSize(conn, 4<<10)}
}

// response begins to read.
func (s *stalled) response(t *testing.T) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// frames reads the response from now on.
func (s *stalled) frames(t *testing.T) *rig.FrameReader {
	t.Helper()
	resp := s.response(t)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return rig.NewFrameReader(resp.Body)
}

// build returns the request itself.
func (q request) build(t *testing.T, c *rig.Caddy) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+c.Addr+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.header != nil {
		req.Header = q.header
	}
	return req
}
