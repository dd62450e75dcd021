package e2e_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A body that is not read does no harm to the next request, on the same
// connection or, after a stream, on a new one.
func TestUnreadBodies(t *testing.T) {
	unread := rig.NewBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("a"), rig.Stop)
	})
	for name, next := range map[string]string{
		"a dead backend":                      "reverse_proxy " + rig.FreeAddr(t),
		"a backend that answers without it":   "reverse_proxy " + unread.Addr,
		"a handler that streams without it":   "header Content-Type text/event-stream\nrespond <<SSE\n" + rig.Chunk("a") + rig.Stop + "SSE",
		"a handler that answers without it":   "respond 403",
		"a handler that fails, an error page": "error 500\nhandle_errors {\nrespond oops\n}",
	} {
		for way, options := range waysToServe {
			t.Run(way+"/"+name, func(t *testing.T) {
				c := rig.Start(t, "ADDR {\nllm_stream {\n"+options+"}\n"+next+"\n}")
				dials := 0
				transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials++
					return new(net.Dialer).DialContext(ctx, network, addr)
				}}
				defer transport.CloseIdleConnections()
				for range 3 {
					req := post(strings.Repeat("x", 10_000)).build(t, c)
					resp, err := transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
				}
				want := 1
				if strings.Contains(name, "streams") && way != "resumable" {
					want = 3
				}
				equal(t, "connections", dials, want)
				if logs := c.Logs(); strings.Contains(logs, "panic serving") {
					t.Error(logs)
				}
			})
		}
	}
}
