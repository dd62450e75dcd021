package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// flood is a backend that says more than fits between here and a client that
// reads nothing, and then no more.
func flood(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	chunk := rig.Chunk(strings.Repeat("x", 16<<10))
	for range 64 {
		rig.Say(w, chunk)
	}
	<-r.Context().Done()
}

// stallHTTP1 sends a request over HTTP/1.1 and never reads the answer.
func stallHTTP1(t *testing.T, addr, request string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
}

// stallHTTP2 sends requests over HTTP/2 with endless windows and never reads:
// it is the connection that is full, not the streams.
func stallHTTP2(t *testing.T, addr string, streams int, window uint32) {
	t.Helper()
	dialer := &tls.Dialer{
		NetDialer: new(net.Dialer),
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: "127.0.0.1"}, //nolint:gosec // a test
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.(*tls.Conn).NetConn().Close() })
	_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", addr}, {":path", "/plain/v1/chat/completions"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = framer.WriteWindowUpdate(0, 1<<30)
	for i := range streams {
		if err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
		}); err != nil {
			t.Fatal(err)
		}
		block.Reset() // the same fields are in the table by now
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", addr}, {":path", "/plain/v1/chat/completions"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
	}
}

// stallHTTP3 sends requests over HTTP/3 and reads no more than the headers of
// the answers.
func stallHTTP3(t *testing.T, addr string, streams int) {
	t.Helper()
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}, //nolint:gosec // a test
		QUICConfig:      &quic.Config{InitialStreamReceiveWindow: 4 << 10, MaxStreamReceiveWindow: 4 << 10},
	}
	t.Cleanup(func() { _ = transport.Close() })
	for range streams {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr+"/plain/v1/chat/completions", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
}

// No number of clients that take nothing, or send nothing, keeps the process.
func TestExitWithStalledClients(t *testing.T) {
	clients, uploads := 300, 20
	if rig.Race {
		clients /= 3
	}
	backend := rig.NewBackend(t, flood)
	caddyfile := site(backend, "drain {\ndeadline 2s\n}")
	p := rig.StartProcess(t, caddyfile+"\n"+strings.Replace(caddyfile, "ADDR {", "https://TLSADDR {\ntls internal\n", 1))
	eventually(t, "TLS is there", func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}}).DialContext(t.Context(), "tcp", p.TLSAddr) //nolint:gosec // a test
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	requestLine := "POST %s/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n{}"
	paths := []string{"/plain", "/kept", "/pass", "/drop"}
	arrive := func(n int) {
		t.Helper()
		eventually(t, "all are there", func() bool { return backend.Calls.Load() >= int64(n) })
	}
	for i := range clients {
		if i%20 == 0 {
			arrive(i)
		}
		stallHTTP1(t, p.Addr, fmt.Sprintf(requestLine, paths[i%3], 2))
	}
	for i := range uploads {
		stallHTTP1(t, p.Addr, fmt.Sprintf(requestLine, paths[i%4], 1000))
	}
	for range 3 {
		stallHTTP2(t, p.TLSAddr, 3, 1<<30)
		stallHTTP2(t, p.TLSAddr, 3, 64<<10)
		stallHTTP3(t, p.TLSAddr, 3)
	}
	arrive(clients + 27)
	time.Sleep(time.Second) // until nothing fits any more
	start := p.Signal(syscall.SIGTERM)
	exits(t, p, start, 3*time.Second)
}
