package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

// flood is a task that always has more, until it is told to end. It says so with
// a Wake, as others do whom nobody tells whether the socket takes bytes.
type flood struct {
	feed
	piece []byte
	had   int64 // by the client, chunks and all; of the test's goroutine

	// The fields below are guarded by mu.
	stop  bool // it ends
	quiet bool // it has no more for now
	given int
}

func (f *flood) Step(c *loop.Conn, b []byte) ([]byte, loop.Next) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop {
		return b, loop.End
	}
	if f.quiet {
		return b, loop.Wait
	}
	f.given += len(f.piece)
	c.Wake()
	return append(b, f.piece...), loop.Wait
}

// takes makes a server whose requests for /flood get no end of bytes.
func (s *site) floods() <-chan *flood {
	out := make(chan *flood, 1000)
	usual := s.server.Config.Handler
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/flood" {
			usual.ServeHTTP(w, r)
			return
		}
		s.begin(w, r)
		f := &flood{piece: bytes.Repeat([]byte("0123456789abcdef"), 1000), feed: feed{ended: make(chan end, 1)}}
		c, err := s.loop.Take(w, r, f, s.options)
		if err != nil {
			s.refused <- err
			return
		}
		f.conn = c
		out <- f
		c.Wake()
	})
	return out
}

const floodRequest = "GET /flood HTTP/1.1\r\nHost: test\r\n\r\n"

// blocked waits until a client's socket takes no more.
func blocked(tb testing.TB, f *flood) {
	tb.Helper()
	for last, same := int64(-1), 0; same < 20; time.Sleep(5 * time.Millisecond) { // a state that nothing announces
		if sent := f.conn.Sent(); sent != last || sent == 0 {
			last, same = sent, 0
		} else {
			same++
		}
	}
}

// Clients that read nothing hold up nobody, and no more than a chunk is kept
// for each.
func TestStalledClientsHoldUpNobody(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		var stalled []*flood
		for range 20 {
			send(t, s.dial(), floodRequest)
			stalled = append(stalled, await(t, floods))
		}
		for _, f := range stalled {
			blocked(t, f)
		}
		resp := s.get()
		f := s.next()
		for i := range 1000 {
			f.say("%d\n", i)
		}
		f.finish(loop.End)
		if got, err := io.ReadAll(resp.Body); bytes.Count(got, []byte("\n")) != 1000 || err != nil {
			t.Errorf("got %d bytes and %v", len(got), err)
		}
		for _, f := range stalled {
			f.mu.Lock()
			if ahead := f.given - int(f.conn.Sent()); ahead < 0 || ahead > len(f.piece) {
				t.Errorf("%d bytes were taken from the task and not by the socket", ahead)
			}
			f.mu.Unlock()
			if len(f.ended) > 0 {
				t.Errorf("a client that only reads nothing was cut: %v", <-f.ended)
			}
		}
	})
}

// A client that comes back to its connection gets everything, once.
func TestStalledClientGoesOn(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		conn := s.dial()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/flood", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r := send(t, conn, floodRequest)
		f := await(t, floods)
		blocked(t, f)
		f.mu.Lock()
		f.stop = true
		f.mu.Unlock()
		resp, err := http.ReadResponse(newReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", r), req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		f.expect(t, loop.Finished, nil)
		if len(got) != f.given || int64(len(got)) != f.conn.Sent() || len(bytes.ReplaceAll(got, f.piece, nil)) != 0 {
			t.Errorf("got %d bytes of %d", len(got), f.given)
		}
	})
}

func TestStalledClientIsCut(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		s.options.Stall = 200 * time.Millisecond
		floods := s.floods()
		send(t, s.dial(), floodRequest)
		await(t, floods).expect(t, loop.Stalled, loop.ErrStalled)
	})
}

// A client that reads slowly is not cut, though its socket says for long that
// it takes nothing.
func TestSlowClientIsNotCut(t *testing.T) {
	s := newSite(t, kinds["plain"])
	s.options.Stall = time.Second
	floods := s.floods()
	conn := s.dial()
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	r := send(t, conn, floodRequest)
	f := await(t, floods)
	buf := make([]byte, 16<<10)
	for start := time.Now(); time.Since(start) < 3*s.options.Stall; {
		if _, err := io.ReadFull(r, buf); err != nil {
			t.Fatalf("cut after %v: %v", time.Since(start), err)
		}
		time.Sleep(10 * time.Millisecond) // that is what being slow is
	}
	select {
	case e := <-f.ended:
		t.Errorf("ended for reason %d: %v", e.reason, e.err)
	default:
	}
}

func TestBlockedClientLeaves(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		conn := s.dial()
		send(t, conn, floodRequest)
		f := await(t, floods)
		blocked(t, f)
		conn.Close()
		f.expect(t, loop.Left, loop.ErrLeft)
	})
}

func TestBlockedConnectionIsDropped(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		send(t, s.dial(), floodRequest)
		f := await(t, floods)
		blocked(t, f)
		f.conn.Drop()
		f.expect(t, loop.Dropped, loop.ErrDropped)
	})
}

// The leaving of a client that was blocked once is noticed as any other.
func TestClientLeavesAfterBlock(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		conn := s.dial()
		r := send(t, conn, floodRequest)
		f := await(t, floods)
		blocked(t, f)
		f.mu.Lock()
		f.quiet = true
		f.mu.Unlock()
		for int64(0) < f.unread(r) {
			runtime.Gosched()
		}
		conn.Close()
		f.expect(t, loop.Left, loop.ErrLeft)
	})
}

// unread reads what there is for the client and returns how much there still
// is to come.
func (f *flood) unread(r *bufio.Reader) int64 {
	for r.Buffered() > 0 {
		n, _ := r.Discard(r.Buffered())
		f.had += int64(n)
	}
	f.mu.Lock()
	left := int64(f.given) - f.had
	f.mu.Unlock()
	if left > 0 {
		_, _ = r.Peek(1)
	}
	return left
}

// Many clients, read by as many goroutines, each get everything.
func TestThousandConnections(t *testing.T) {
	const events = 50
	for kind, clients := range map[string]int{"plain": 1000, "TLS": 200} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kinds[kind])
			var feeds []*feed
			var wg sync.WaitGroup
			for range clients {
				resp := s.get()
				feeds = append(feeds, s.next())
				wg.Go(func() {
					if got, err := io.ReadAll(resp.Body); bytes.Count(got, []byte("\n")) != events || err != nil {
						t.Errorf("got %d bytes and %v", len(got), err)
					}
				})
			}
			if s.loop.Parked() != clients {
				t.Errorf("%d are parked", s.loop.Parked())
			}
			for i := range events {
				for _, f := range feeds {
					f.say("%d\n", i)
				}
			}
			for _, f := range feeds {
				f.finish(loop.End)
			}
			wg.Wait()
			for _, f := range feeds {
				f.expect(t, loop.Finished, nil)
			}
		})
	}
}

// Nothing of a connection is left, however it has ended.
func TestNothingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are counted in /proc")
	}
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	s := newSite(t, kinds["plain"])
	s.options.Stall = 100 * time.Millisecond
	floods := s.floods()
	before := files()
	goroutines := runtime.NumGoroutine()
	for i := range 100 {
		conn := s.dial()
		if i%5 == 4 {
			send(t, conn, floodRequest)
			await(t, floods).expect(t, loop.Stalled, loop.ErrStalled)
			conn.Close()
			continue
		}
		send(t, conn, getRequest)
		f := s.next()
		switch i % 5 {
		case 0:
			f.finish(loop.End)
		case 1:
			f.finish(loop.Abort)
		case 2:
			f.conn.Drop()
		}
		conn.Close()
		await(t, f.ended)
	}
	// The server still has to see that the clients of the first case have left.
	for deadline := time.Now().Add(patience); files() > before || s.loop.Parked() > 0 || runtime.NumGoroutine() > goroutines+2; {
		if time.Now().After(deadline) {
			t.Fatalf("%d files, %d parked, %d goroutines, where there were %d, 0, %d",
				files(), s.loop.Parked(), runtime.NumGoroutine(), before, goroutines)
		}
		runtime.Gosched()
	}
}

// Shutdown waits for connections that end by themselves, and takes none.
func TestShutdownWaits(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		f := s.next()
		l, done := s.loop, make(chan error)
		go func() { done <- l.Shutdown(context.Background()) }()
		for errors.Is(takeOne(t, s), nil) {
			runtime.Gosched() // until it has begun
		}
		f.say("to the end")
		f.finish(loop.End)
		if got, err := io.ReadAll(resp.Body); string(got) != "to the end" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
		if err := await(t, done); err != nil {
			t.Error(err)
		}
		s.loop = nil
	})
}

// takeOne sends a request that ends at once, and returns what Take says.
func takeOne(t *testing.T, s *site) error {
	t.Helper()
	resp := s.get()
	defer resp.Body.Close()
	select {
	case f := <-s.parked:
		f.finish(loop.End)
		f.expect(t, loop.Finished, nil)
		return nil
	case err := <-s.refused:
		return err
	case <-time.After(patience):
		t.Fatal("neither taken nor refused")
		return nil
	}
}

// Shutdown does not wait for ever.
func TestShutdownDrops(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		floods := s.floods()
		send(t, s.dial(), floodRequest)
		blockedOne := await(t, floods)
		blocked(t, blockedOne)
		resp := s.get()
		f := s.next()
		if err := s.shutdown(10 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		f.expect(t, loop.Dropped, loop.ErrDropped)
		blockedOne.expect(t, loop.Dropped, loop.ErrDropped)
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a dropped connection is a good end")
		}
	})
}

// newReader reads a head that was taken off a connection before what follows.
func newReader(head string, rest io.Reader) *bufio.Reader {
	return bufio.NewReader(io.MultiReader(strings.NewReader(head), rest))
}
