package rig

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/quic-go/quic-go/http3"
)

// Transports returns one client for each protocol of HTTP, by the name that a
// response has for it. They trust Caddy's own authority without knowing it, and
// are closed at the end of the test.
func Transports(t *testing.T) map[string]http.RoundTripper {
	t.Helper()
	insecure := &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"} //nolint:gosec // Caddy's own authority, not installed here
	h1 := &http.Transport{TLSClientConfig: insecure.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	h2 := &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
	h3 := &http3.Transport{TLSClientConfig: insecure.Clone()}
	t.Cleanup(func() {
		h1.CloseIdleConnections()
		h2.CloseIdleConnections()
		_ = h3.Close()
	})
	return map[string]http.RoundTripper{"HTTP/1.1": h1, "HTTP/2.0": h2, "HTTP/3.0": h3}
}
