package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// gush is a backend that has n deltas of bulkSize to say, each with its number,
// and says them as fast as they are taken, or one for each tick.
type gush struct {
	n     int
	tick  chan struct{} // nil: without waiting
	sent  atomic.Int64
	ended chan error // how it ended: nil where all was said
}

func newGush(n int) *gush { return &gush{n: n, ended: make(chan error, 1)} }

func (g *gush) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	for i := range g.n {
		if g.tick != nil {
			select {
			case <-g.tick:
			case <-r.Context().Done():
				g.ended <- r.Context().Err()
				return
			}
		}
		_, err := io.WriteString(w, rig.Chunk(g.text(i)))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			g.ended <- err
			return
		}
		g.sent.Add(1)
	}
	rig.Say(w, rig.Stop)
	g.ended <- r.Context().Err()
}

// text is the delta with the number i.
func (g *gush) text(i int) string { return fmt.Sprintf("%0*d ", bulkSize-1, i) }

// watch reads everything, the first delta of which has been said, each frame
// before the next delta is said: none is merged, dropped, or late.
func (g *gush) watch(t *testing.T, fr *rig.FrameReader) {
	t.Helper()
	for i := range g.n {
		f := frames(t, fr, 1)[0]
		if f.Index() != i+1 || f.Data != `{"text":"`+g.text(i)+`"}` {
			t.Fatalf("%.200v is not the delta %d", f, i)
		}
		if i < g.n-1 {
			g.tick <- struct{}{}
		}
	}
	equal(t, "end", lastData(frames(t, fr, -1)), `{"finish_reason":"stop"}`)
}

// finished waits for the backend's end.
func (g *gush) finished(t *testing.T) error {
	t.Helper()
	select {
	case err := <-g.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the backend is held back after %d of %d", g.sent.Load(), g.n)
		return nil
	}
}

// held waits until the backend can say no more, and returns how many deltas it
// has said.
func (g *gush) held(t *testing.T) int64 {
	t.Helper()
	before, since := int64(-1), time.Now()
	for time.Since(since) < 300*time.Millisecond {
		if sent := g.sent.Load(); sent != before {
			before, since = sent, time.Now()
		}
		select {
		case err := <-g.ended:
			t.Fatalf("the backend was not held back: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return before
}

// taken is what a client has read of much.
type taken struct {
	text   strings.Builder
	frames int    // with text
	id     string // of the last frame
	done   bool
}

// cutOff checks that the response does not seem to be whole.
func (s *stalled) cutOff(t *testing.T) {
	t.Helper()
	resp, err := http.ReadResponse(s.r, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == nil {
		t.Error("the slow client was given a clean end")
	}
}

// take reads until the body ends; gaps and reconnects go to f.
func take(t *testing.T, fr *rig.FrameReader, f func(rig.Frame)) (got *taken, err error) {
	t.Helper()
	got = new(taken)
	for index := 0; ; {
		frame, err := fr.Next()
		if err != nil {
			return got, err
		}
		if got.done || frame.Index() < index || (frame.Index() == index && frame.Event != "reconnect") {
			t.Fatalf("%.200v after the index %d", frame, index)
		}
		index, got.id = frame.Index(), frame.ID
		if frame.Event != "" && frame.Event != "done" {
			f(frame)
			continue
		}
		var data struct{ Text string }
		if err := json.Unmarshal([]byte(frame.Data), &data); err != nil {
			t.Fatal(err)
		}
		got.text.WriteString(data.Text)
		got.frames++
		got.done = frame.Event == "done"
	}
}

// all checks that a client has had everything that g has said.
func (g *gush) all(t *testing.T, who, text string) {
	t.Helper()
	for i := range g.n {
		want := g.text(i)
		got, rest, _ := strings.Cut(text, " ")
		if got+" " != want {
			t.Errorf("%s has %.80q, not the delta %d", who, text, i)
			return
		}
		text = rest
	}
	equal(t, "more than "+who+" should have", text, "")
}

// bulk is more than sockets take on the way: 8 MB in 2000 deltas.
const (
	bulkEvents = 2000
	bulkSize   = 4000
)

// fiftyMB is that in deltas of bulkSize; less where everything is slow.
func fiftyMB() int {
	if rig.Race {
		return 16 << 20 / bulkSize
	}
	return 50 << 20 / bulkSize
}
