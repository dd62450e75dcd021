package loop_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

// A client uses its connection again after a whole body, whoever has written
// it.
func TestConnectionIsUsedAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		known := !strings.Contains(t.Name(), "wrapped") // to be the server's, and not the response's
		for i := range 4 {
			reused := false
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
			}), http.MethodGet, s.server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			f := s.next()
			f.say("%d", i)
			f.finish(loop.End)
			if got, err := io.ReadAll(resp.Body); string(got) != fmt.Sprint(i) || err != nil {
				t.Errorf("got %q and %v", got, err)
			}
			resp.Body.Close()
			f.expect(t, loop.Finished, nil)
			if reused != (known && i > 0) {
				t.Errorf("request %d used a connection again: %v", i, reused)
			}
		}
	})
}

// A request that comes while the one before is served is not lost.
func TestRequestsThatComeEarly(t *testing.T) {
	for _, kind := range []string{"plain", "TLS", "TLS over that"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kinds[kind])
			conn := s.dial()
			var last *bufio.Reader
			if _, err := io.WriteString(conn, strings.Repeat(getRequest, 3)); err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				if i == 1 { // while the second waits
					if _, err := io.WriteString(conn, getRequest); err != nil {
						t.Fatal(err)
					}
				}
				f := s.next()
				f.say("%d", i)
				f.finish(loop.End)
				f.expect(t, loop.Finished, nil)
			}
			last = bufio.NewReader(conn)
			for i := range 4 {
				resp, err := http.ReadResponse(last, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); string(got) != fmt.Sprint(i) || err != nil {
					t.Errorf("got %q and %v", got, err)
				}
			}
		})
	}
}

// A client that has asked for it, or was told so, finds the connection closed
// after the body.
func TestConnectionIsClosed(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		conn := s.dial()
		r := send(t, conn, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
		f := s.next()
		f.say("x")
		f.finish(loop.End)
		if got, err := io.ReadAll(r); string(got) != "1\r\nx\r\n0\r\n\r\n" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
		f.expect(t, loop.Finished, nil)
	})
}

// A server that has been shut down gets nothing back: the client finds a whole
// body and a closed connection.
func TestServerIsGone(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		conn := s.dial()
		r := send(t, conn, getRequest)
		f := s.next()
		if err := s.server.Config.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.say("x")
		f.finish(loop.End)
		if got, err := io.ReadAll(r); string(got) != "1\r\nx\r\n0\r\n\r\n" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
		f.expect(t, loop.Finished, nil)
	})
}

// The connection is not given back before the handler has returned.
func TestHandlerThatStays(t *testing.T) {
	s := newSite(t, kinds["plain"])
	leave := make(chan struct{})
	take := s.server.Config.Handler
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		take.ServeHTTP(w, r)
		if r.URL.Path == "/stay" {
			<-leave
		}
	})
	conn := s.dial()
	r := send(t, conn, "GET /stay HTTP/1.1\r\nHost: test\r\n\r\n")
	f := s.next()
	f.finish(loop.End)
	f.expect(t, loop.Finished, nil)
	if s.loop.Parked() != 1 {
		t.Error("the connection is the server's before its handler has returned")
	}
	close(leave)
	send(t, conn, getRequest)
	s.next().finish(loop.End)
	if _, err := io.ReadFull(r, make([]byte, len("0\r\n\r\n"))); err != nil {
		t.Fatal(err)
	}
}

// A deadline that the handler leaves behind does not count.
func TestDeadlineOfTheHandler(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		take := s.server.Config.Handler
		s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			take.ServeHTTP(w, r)
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		})
		conn := s.dial()
		r := send(t, conn, getRequest)
		f := s.next()
		select {
		case e := <-f.ended:
			t.Fatalf("ended for reason %d: %v", e.reason, e.err)
		case <-time.After(50 * time.Millisecond): // nothing may happen
		}
		f.say("x")
		f.finish(loop.End)
		f.expect(t, loop.Finished, nil)
		if _, err := r.ReadString('0'); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(t.Name(), "wrapped") {
			send(t, conn, getRequest)
			s.next()
		}
	})
}

// buffering holds back what is written, head and all.
type buffering struct{ http.ResponseWriter }

func (b buffering) Unwrap() http.ResponseWriter       { return b.ResponseWriter }
func (b buffering) WriteHeader(int)                   {}
func (b buffering) Write(p []byte) (n int, err error) { return len(p), nil }
func (b buffering) FlushError() error                 { return nil }

// What cannot be taken goes on as if nothing had been asked.
func TestNotTaken(t *testing.T) {
	header := func(name, value string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			w.WriteHeader(http.StatusOK)
		}
	}
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	for name, test := range map[string]struct {
		request string
		begin   func(http.ResponseWriter, *http.Request)
		wrap    func(http.ResponseWriter) http.ResponseWriter
		options loop.Options
		want    string
	}{
		"HTTP/1.0":          {request: "GET / HTTP/1.0\r\n\r\n", begin: ok, want: "HTTP/1.1"},
		"HEAD":              {request: "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", begin: ok, want: "chunks"},
		"no head":           {begin: func(http.ResponseWriter, *http.Request) {}, want: "head"},
		"no body":           {begin: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, want: "chunks"},
		"Content-Length":    {begin: header("Content-Length", "2"), want: "chunks"},
		"Content-Encoding":  {begin: header("Content-Encoding", "gzip"), want: "encoded"},
		"Transfer-Encoding": {begin: header("Transfer-Encoding", "identity"), want: "chunks"},
		"Trailer":           {begin: header("Trailer", "X"), want: "trailers"},
		"late trailer":      {begin: header(http.TrailerPrefix+"X", "y"), want: "trailers"},
		"body unread":       {request: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", begin: ok, want: "request's body"},
		"buffered": {
			begin: ok, want: "head",
			wrap: func(w http.ResponseWriter) http.ResponseWriter { return buffering{w} },
		},
		"unknown": {
			begin: ok, want: "unknown",
			wrap: func(w http.ResponseWriter) http.ResponseWriter { return struct{ http.ResponseWriter }{w} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(s *httptest.Server) {
				take := s.Config.Handler
				s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner := w
					if test.wrap != nil {
						w = test.wrap(w)
					}
					take.ServeHTTP(w, r)
					_, _ = io.WriteString(inner, "{}")
				})
				s.Start()
			})
			s.begin, s.options = test.begin, test.options
			request := test.request
			if request == "" {
				request = getRequest
			}
			conn := s.dial()
			r := send(t, conn, request)
			if err := await(t, s.refused); !errors.Is(err, loop.ErrNotTaken) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want one about %s", err, test.want)
			}
			if s.loop.Parked() != 0 {
				t.Error("it was taken")
			}
			if name == "HEAD" || name == "no body" {
				return
			}
			for want := "{}"; want != ""; {
				line, err := r.ReadString('}')
				if strings.Contains(line, want) {
					break
				}
				if err != nil {
					t.Fatalf("the handler's own body is missing: %v", err)
				}
			}
		})
	}
}

func TestNotTakenOnHTTP2(t *testing.T) {
	s := newSite(t, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	if resp := s.get(); resp.ProtoMajor != 2 {
		t.Fatalf("the client speaks HTTP/%d", resp.ProtoMajor)
	}
	if err := await(t, s.refused); !errors.Is(err, loop.ErrNotTaken) {
		t.Errorf("got %v", err)
	}
}

// A request's body that was read to its end is no obstacle.
func TestBodyRead(t *testing.T) {
	eachKind(t, func(t *testing.T, s *site) {
		begin := s.begin
		s.begin = func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			begin(w, r)
		}
		for range 2 {
			resp, err := s.server.Client().Post(s.server.URL, "application/json", strings.NewReader("{}")) //nolint:noctx // short
			if err != nil {
				t.Fatal(err)
			}
			s.next().finish(loop.End)
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			resp.Body.Close()
		}
	})
}
