package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A backend that says everything at once, as a cache does, makes no slow client
// of one that reads.
func TestBurstMakesNoSlowClient(t *testing.T) {
	const n = 5000
	var said strings.Builder
	for i := range n {
		said.WriteString(rig.Chunk(fmt.Sprint(i, " ")))
	}
	for _, options := range []string{
		"slow_client drop\n",
		"slow_client disconnect\n",
		"slow_client drop\nresume /llm {\nmax_size 64MiB\n}\n",
		"slow_client disconnect\nresume /llm {\nmax_size 64MiB\n}\n",
		"slow_client drop\nbuffer 4\n",
	} {
		t.Run(strings.ReplaceAll(options, "\n", " "), func(t *testing.T) {
			c, _ := serve(t, options, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rig.EventStream(w)
				rig.Say(w, said.String(), rig.Stop)
			})
			fr := rig.NewFrameReader(post(`{}`).do(t, c).Body)
			for i, f := range frames(t, fr, n+1) {
				if want := fmt.Sprintf(`{"text":"%d "}`, i); i < n && (f.Event != "" || f.Data != want) {
					t.Fatalf("event %d is %+v", i+1, f)
				}
			}
		})
	}
}

// A client that is sent away because it is slow is counted as such, and so soon
// that the upstream is not paid for what no client reads.
func TestSlowClientIsSentAwayFromItsWrite(t *testing.T) {
	g := newGush(1000 * bulkEvents)
	backend := rig.NewBackend(t, g.ServeHTTP)
	c := rig.Start(t, fmt.Sprintf(withMetrics, "slow_client disconnect", backend.Addr)) // and its write may take 30 s
	before := scrape(t, c)
	slow := stall(t, c, post(`{}`))
	begin := time.Now()
	if err := g.finished(t); err == nil {
		t.Error("the upstream was not cancelled")
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	slow.cutOff(t)
	for _, name := range []string{
		`streams_total{format="openai-chat",outcome="slow_client"}`, `slow_clients_total{action="disconnected"}`,
	} {
		eventually(t, name+" is counted", func() bool { return scrape(t, c)[name]-before[name] == 1 })
	}
	equal(t, "active streams", scrape(t, c)["active_streams"], 0)
}
