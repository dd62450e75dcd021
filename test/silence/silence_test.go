// Package silence_test waits through a long silence, which takes a minute and
// no processor: beside the other tests, in a process of its own.
package silence_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-llmstream/caddy-llmstream"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

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
	for proto, transport := range rig.Transports(t) {
		for path, beats := range map[string]int{"/beats": 4, "/silent": 0} {
			wg.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.TLSAddr+path+"/v1/chat/completions",
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
				if resp.Proto != proto {
					t.Errorf("protocol %s, not %s", resp.Proto, proto)
				}
				a := rig.ReadAnswer(t, resp.Body)
				if got, want := fmt.Sprint(a.Text, a.Cut, a.Comments), fmt.Sprint("at last", nil, beats); got != want {
					t.Errorf("%s%s: %s, not %s", proto, path, got, want)
				}
			})
		}
	}
	wg.Wait()
}
