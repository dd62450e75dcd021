package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

// What a parked connection is sent is what net/http's own handlers send, byte
// for byte.
func TestChunksAreThoseOfNetHTTP(t *testing.T) {
	pieces := []string{"a", "data: x\n\n", strings.Repeat("b", 15), strings.Repeat("c", 16), strings.Repeat("d", 70000), "\r\n"}
	whole := func(conn net.Conn) string {
		if _, err := io.WriteString(conn, getRequest); err != nil {
			t.Fatal(err)
		}
		var got []byte
		buf := make([]byte, 4096)
		for !bytes.HasSuffix(got, []byte("\r\n0\r\n\r\n")) {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			got = append(got, buf[:n]...)
		}
		return regexp.MustCompile(`Date: .*GMT`).ReplaceAllString(string(got), "Date:")
	}
	eachKind(t, func(t *testing.T, s *site) {
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.begin(w, r)
			for _, p := range pieces {
				_, _ = w.Write([]byte(p)) // what is larger than net/http's buffer passes it
				_ = http.NewResponseController(w).Flush()
			}
		}))
		defer plain.Close()
		ordinary, err := net.Dial("tcp", plain.Listener.Addr().String()) //nolint:noctx // of this machine
		if err != nil {
			t.Fatal(err)
		}
		defer ordinary.Close()
		want := whole(ordinary)

		conn := s.dial()
		go func() {
			f := <-s.parked
			for _, p := range pieces {
				f.say("%s", p)
			}
			f.finish(loop.End)
		}()
		if got := whole(conn); got != want {
			t.Errorf("got %.300q, want %.300q", got, want)
		}
	})
}

func TestEveryPieceArrivesOnceInOrder(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		f := s.next()
		var want strings.Builder
		for i := range 5000 {
			f.say("%d\n", i)
			fmt.Fprintf(&want, "%d\n", i)
		}
		f.finish(loop.End)
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != want.String() {
			t.Fatalf("got %d bytes and %v, want %d", len(got), err, want.Len())
		}
		f.expect(t, loop.Finished, nil)
		if f.conn.Sent() != int64(want.Len()) {
			t.Errorf("Sent is %d, want %d", f.conn.Sent(), want.Len())
		}
	})
}

// What a handler has written itself comes first.
func TestHandlerWritesBefore(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		s.begin = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "first, ") }
		resp := s.get()
		f := s.next()
		f.say("second")
		f.finish(loop.End)
		if got, err := io.ReadAll(resp.Body); string(got) != "first, second" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
	})
}

// A task that ends without a byte ends the body.
func TestEmptyBody(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		s.next().finish(loop.End)
		if got, err := io.ReadAll(resp.Body); len(got) != 0 || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
	})
}

func TestAbortIsNoGoodEnd(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		f := s.next()
		f.say("the last words")
		f.finish(loop.Abort)
		got, err := io.ReadAll(resp.Body)
		if string(got) != "the last words" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %q and %v", got, err)
		}
		f.expect(t, loop.Aborted, nil)
	})
}

// An aborted connection is closed behind what was written even where the
// client has said something that nobody reads: its bytes must not destroy ours.
func TestAbortWithUnreadBytes(t *testing.T) {
	s := newSite(t, kinds["plain"])
	conn := s.dial()
	r := send(t, conn, getRequest)
	f := s.next()
	if _, err := io.WriteString(conn, getRequest); err != nil {
		t.Fatal(err)
	}
	f.say("the last words")
	f.finish(loop.Abort)
	f.expect(t, loop.Aborted, nil)
	if got, err := io.ReadAll(r); string(got) != "e\r\nthe last words\r\n" || err != nil {
		t.Errorf("got %q and %v", got, err)
	}
}

func TestDrop(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		f := s.next()
		f.conn.Drop()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a dropped connection is a good end")
		}
		f.expect(t, loop.Dropped, loop.ErrDropped)
	})
}

func TestPanicDropsOnlyItsConnection(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		bad := s.get()
		f := s.next()
		good := s.get()
		g := s.next()
		f.step = func(*loop.Conn) { panic("of this test") }
		f.conn.Wake()
		f.expect(t, loop.Dropped, loop.ErrDropped)
		if _, err := io.ReadAll(bad.Body); err == nil {
			t.Error("a panic is a good end")
		}
		g.say("well")
		g.finish(loop.End)
		if got, err := io.ReadAll(good.Body); string(got) != "well" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
	})
}

func TestLeavingIsNoticed(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		for _, unread := range []string{"", "x"} {
			conn := s.dial()
			send(t, conn, getRequest)
			f := s.next()
			if _, err := io.WriteString(conn, unread); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			conn.Close()
			if unread != "" {
				// Where nobody but the connection's own reader watches, bytes
				// that it leaves unread hide the end, as in net/http.
				f.say("x")
				f.say("y")
			}
			f.expect(t, loop.Left, loop.ErrLeft)
			t.Logf("noticed after %v", time.Since(start))
		}
	})
}

func TestAlarm(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		resp := s.get()
		f := s.next()
		rings := 0
		f.step = func(c *loop.Conn) {
			if rings++; rings < 4 {
				c.WakeIn(time.Millisecond)
			} else {
				f.mu.Lock()
				f.last = loop.End
				f.mu.Unlock()
			}
		}
		f.conn.Wake()
		f.expect(t, loop.Finished, nil)
		if _, err := io.ReadAll(resp.Body); err != nil || rings != 4 {
			t.Errorf("%d rings and %v", rings, err)
		}
	})
}
