package loop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// parkHandler parks what it is asked, in the loop of the test.
type parkHandler struct{}

var current *site

func init() {
	caddy.RegisterModule(parkHandler{})
	httpcaddyfile.RegisterHandlerDirective("loop_test", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return new(parkHandler), nil
	})
}

func (parkHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.loop_test", New: func() caddy.Module { return new(parkHandler) }}
}

func (parkHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	current.ServeHTTP(w, r)
	return nil
}

// Inside Caddy, with its wrappers around response and connection, a connection
// is parked on the poller and used again.
func TestInsideCaddy(t *testing.T) {
	current = &site{
		tb: t, loop: loop.New(), options: loop.Options{BodyRead: true},
		begin: func(w http.ResponseWriter, _ *http.Request) {
			// Without these, encode holds back the head, or compresses.
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-transform")
			w.WriteHeader(http.StatusOK)
		},
		parked: make(chan *feed, 1), refused: make(chan error, 1),
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = current.loop.Shutdown(ctx)
	}()
	c := rig.Start(t, `
{
	order loop_test last
}
ADDR {
	log
	encode
	loop_test
}
https://TLSADDR {
	tls internal
	log
	encode
	loop_test
}
`)
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a test's
	c.WaitTLS(insecure)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			var conn net.Conn
			var err error
			if scheme == "http" {
				conn, err = net.Dial("tcp", c.Addr) //nolint:noctx // of this machine
			} else {
				conn, err = tls.Dial("tcp", c.TLSAddr, insecure) //nolint:noctx // likewise
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			for i := range 3 {
				if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nAccept-Encoding: gzip\r\nHost: "+conn.RemoteAddr().String()+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				f := current.next()
				if !loop.Polled(f.conn) {
					t.Error("the connection has goroutines of its own")
				}
				f.say("%d", i)
				f.finish(loop.End)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); string(got) != fmt.Sprint(i) || err != nil {
					t.Errorf("got %q and %v", got, err)
				}
				f.expect(t, loop.Finished, nil)
			}
		})
	}
}
