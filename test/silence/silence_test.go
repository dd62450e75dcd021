package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// transports returns one client for each protocol, and what closes them.
func transports(t *testing.T) map[string]http.RoundTripper {
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

// golang/go#70834, caddy#8103: 70 s of nothing before the first token, after a
// request with a body, with Caddy's own idle timeouts as they are.
func TestLongSilence(t *testing.T) {
	const silence = 70 * time.Second
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(silence):
		case <-r.Context().Done():
			return
		}
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("at last"), rig.Stop)
	})
	c := rig.Start(t, `https://TLSADDR {
		tls internal
		llm_stream /beats/* {
			heartbeat 15s
		}
		llm_stream /silent/* {
			heartbeat off
		}
		reverse_proxy `+backend.Addr+`
	}`)
	c.WaitTLS(&tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}) //nolint:gosec // as above
	var wg sync.WaitGroup
	for proto, transport := range transports(t) {
		for path, beats := range map[string]int{"/beats": 4, "/silent": 0} {
			wg.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.TLSAddr+path+chatPath,
					strings.NewReader(`{"model":"m","stream":true}`))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Errorf("%s%s: %v", proto, path, err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				equal(t, "protocol", resp.Proto, proto)
				a := rig.ReadAnswer(t, resp.Body)
				equal(t, proto+path, fmt.Sprint(a.Text, a.Cut, a.Comments), fmt.Sprint("at last", nil, beats))
			})
		}
	}
	wg.Wait()
}
