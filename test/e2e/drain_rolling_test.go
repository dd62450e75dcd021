package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// loop is a client of a load balancer that does what docs/operations.md tells: it comes
// back after a failure, with the id it has, and asks anew where that is not
// known any more. It returns the text of a response that has come to its end.
func loop(t *testing.T, url string) (text string, tries int) {
	t.Helper()
	last := ""
	for tries = 1; tries < 50; tries++ {
		q := post(`{"stream":true}`)
		if last != "" {
			q.header.Set("Last-Event-ID", last)
		}
		_, end := observe(t, manyClients, url, q, false)
		s := <-end
		if s.resp == nil || s.resp.StatusCode != http.StatusOK {
			if s.resp != nil && (s.resp.StatusCode == http.StatusNotFound || s.resp.StatusCode == http.StatusGone) {
				last, text = "", ""
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for _, f := range s.frames {
			var data struct{ Text string }
			_ = json.Unmarshal([]byte(f.Data), &data)
			if f.Event == "" {
				text += data.Text
				last = f.ID
			}
		}
		if s.last().Event == "done" {
			return text, tries
		}
		if s.last().Event == "error" {
			last, text = "", ""
		}
	}
	t.Error("no response comes to its end")
	return "", tries
}

// A rolling restart of two Caddies behind a TCP balancer: streams finish, new
// ones go to the other, and no client loses anything.
func TestRollingRestart(t *testing.T) {
	const words = 50
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for i := range words {
			rig.Say(w, rig.Chunk(fmt.Sprintf("t%d ", i)))
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		rig.Say(w, rig.Stop)
	})
	caddyfile := fmt.Sprintf("ADDR {\nrespond /health ok\nllm_stream {\nresume /llm\ndrain {\ndeadline 10s\n}\n}\nreverse_proxy %s\n}", backend.Addr)
	nodes := []*rig.Process{rig.StartProcess(t, caddyfile), rig.StartProcess(t, caddyfile)}
	balancer := rig.StartBalancer(t, nodes[0].Addr, nodes[1].Addr)

	stop := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	var responses, tries int
	for range rollingRequests {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				text, n := loop(t, "http://"+balancer)
				mu.Lock()
				responses, tries = responses+1, tries+n
				mu.Unlock()
				if want := wantText(words); text != want {
					t.Errorf("a client has had %q", text)
				}
			}
		})
	}
	time.Sleep(1500 * time.Millisecond)
	start := nodes[0].Signal(syscall.SIGTERM)
	exits(t, nodes[0], start, 3*time.Second) // its streams take one second
	time.Sleep(time.Second)
	close(stop)
	clients.Wait()
	t.Logf("%d responses, %d tries, %d upstream calls", responses, tries, backend.Calls.Load())
	equal(t, "upstream calls for each response", backend.Calls.Load(), int64(responses))
	if dump, err := httputil.DumpResponse(get("/health").at(t, balancer), true); err != nil || !strings.Contains(string(dump), "ok") {
		t.Errorf("the other node: %v %s", err, dump)
	}
}

// at sends the request to an address.
func (q request) at(t *testing.T, addr string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+q.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := manyClients.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
