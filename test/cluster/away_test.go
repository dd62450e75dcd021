package cluster_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const localOnly = "X-Llm-Stream-Local-Only"

// snapshot asks a replica for a response as JSON, and returns its status and text.
func (c *cluster) snapshot(addr, id string) (status int, said string) {
	resp := c.call(c.t.Context(), http.MethodGet, addr, "/llm/streams/"+id, "Accept", "application/json")
	return resp.StatusCode, read(c.t, resp.Body)
}

// While Redis is away, streams go on where they are produced, for those who ask
// anew too, and say that they are local only. When it is back, another replica has
// all of them, or says that it has not: never a good end after less.
func TestStoreAway(t *testing.T) {
	const n = 150
	for name, tc := range map[string]struct {
		away time.Duration // beside a lease of 2 s
		lost bool          // Redis comes back empty
	}{
		"the link, shortly": {away: 700 * time.Millisecond},
		"the link, long":    {away: 3 * time.Second},
		"a new Redis":       {away: 700 * time.Millisecond, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			proxy := redistest.NewProxy(t, redis.Addr)
			c := startAt(t, proxy.URL(), 2, longGrace, words(n, 30*time.Millisecond))
			a, b := c.nodes[0].Addr, c.nodes[1].Addr
			before := c.call(t.Context(), http.MethodPost, a, chat)
			frames(t, rig.NewFrameReader(before.Body), 5)
			equal(t, "mark of a response that Redis has", before.Header.Get(localOnly), "")
			proxy.Refuse(true)
			if tc.lost {
				redis.Do("FLUSHALL")
			}
			gone := time.Now()
			during := c.await(a)
			time.Sleep(time.Until(gone.Add(tc.away)))
			proxy.Refuse(false)
			for what, resp := range map[string]*http.Response{"before": before, "during": during} {
				r := new(reader)
				if !r.take(resp.Body) || r.end != "done" || !strings.HasSuffix(text(n), r.text) {
					t.Errorf("asked %s Redis was away, at A: ends with %s %s after %q", what, r.end, r.code, r.text)
				}
				status, said := c.snapshot(b, resp.Header.Get("X-Response-Id"))
				t.Logf("%s: %d %.80s", what, status, said)
				whole := strings.Contains(said, text(n))
				if status == http.StatusOK && strings.Contains(said, `"status":"done"`) != whole || status >= http.StatusInternalServerError && status != http.StatusBadGateway {
					t.Errorf("asked %s Redis was away, at B: %d %s", what, status, said)
				}
				if !tc.lost && !whole {
					t.Errorf("asked %s Redis was away, B has not all of it: %d %s", what, status, said)
				}
			}
		})
	}
}

// await asks a replica for responses until one says that it is local only.
func (c *cluster) await(addr string) *http.Response {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp := c.call(c.t.Context(), http.MethodPost, addr, chat)
		if resp.Header.Get(localOnly) == "true" {
			return resp
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 1)
		_ = resp.Body.Close()
		if time.Now().After(deadline) {
			c.t.Fatalf("no response of %s says that it is local only", addr)
		}
	}
}
