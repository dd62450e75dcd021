// Package cluster_test runs several Caddies that share a Redis, each in a process
// of its own, and treats them as replicas are treated: it kills, pauses and
// replaces them while clients read.
package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

func TestMain(m *testing.M) {
	// Connections that nobody uses would wait for a replica that is gone.
	http.DefaultClient.Transport = &http.Transport{DisableKeepAlives: true}
	os.Exit(m.Run())
}

// caddyfile is that of every replica. The backend is given by the test.
const caddyfile = `{
	grace_period 20s
	llm_stream {
		store redis %s {
			lease 2s
		}
	}
}
ADDR {
	llm_stream {
		emit {http.request.header.X-Dialect}
		resume /llm {
			owner   anyone
			channel {http.request.header.X-Chat-Id}
			grace   %s
		}
		drain {
			deadline 8s
			spread   500ms
			retry    200ms
		}
	}
	reverse_proxy %s
}
`

const longGrace = "30s"

// cluster is some replicas.
type cluster struct {
	t       *testing.T
	redis   *redistest.Server
	backend *rig.Backend
	file    string
	nodes   []*rig.Process
}

// start starts so many replicas.
func start(t *testing.T, replicas int, grace string, answer http.HandlerFunc) *cluster {
	t.Helper()
	redis := redistest.Start(t)
	c := startAt(t, redis.URL(), replicas, grace, answer)
	c.redis = redis
	return c
}

// startAt is start with the Redis at a URL.
func startAt(t *testing.T, url string, replicas int, grace string, answer http.HandlerFunc) *cluster {
	t.Helper()
	c := &cluster{t: t, backend: rig.NewBackend(t, answer)}
	c.file = fmt.Sprintf(caddyfile, url, grace, c.backend.Addr)
	var starting sync.WaitGroup
	c.nodes = make([]*rig.Process, replicas)
	for i := range c.nodes {
		starting.Go(func() { c.nodes[i] = rig.StartProcess(t, c.file) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// awaitCalls waits until the backend has got so many calls, and its first words
// have gone out.
func (c *cluster) awaitCalls(n int64) {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); c.backend.Calls.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("the backend has got %d calls", c.backend.Calls.Load())
		}
	}
	time.Sleep(200 * time.Millisecond)
}

// words is a backend that says so many words, one after another.
func words(n int, gap time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for i := range n {
			rig.Say(w, rig.Chunk(word(i)))
			select {
			case <-time.After(gap):
			case <-r.Context().Done():
				return
			}
		}
		rig.Say(w, rig.Stop)
	}
}

func word(i int) string { return fmt.Sprintf("t%d ", i) }

func text(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(word(i))
	}
	return b.String()
}

const chat = "/v1/chat/completions"

// call is a request to a replica; fields are name and value in turn.
func (c *cluster) call(ctx context.Context, method, addr, path string, fields ...string) *http.Response {
	c.t.Helper()
	resp, err := try(ctx, method, addr, path, fields...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func try(ctx context.Context, method, addr, path string, fields ...string) (*http.Response, error) {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"stream":true,"stream_options":{"include_usage":true}}`)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return http.DefaultClient.Do(req)
}

// read reads a body to its end.
func read(t *testing.T, body io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Errorf("body: %v after %q", err, b)
	}
	return string(b)
}

// frames reads so many frames.
func frames(t *testing.T, fr *rig.FrameReader, n int) []rig.Frame {
	t.Helper()
	list := make([]rig.Frame, 0, n)
	for range n {
		f, err := fr.Next()
		if err != nil {
			t.Fatalf("after %d frames: %v", len(list), err)
		}
		list = append(list, f)
	}
	return list
}

// reader is a client in the text dialect that comes back wherever it is cut off,
// until the response has ended.
type reader struct {
	text  string
	last  string
	end   string // the last event
	code  string // of an error
	tries int
	took  time.Duration // from the last cut to the end
}

// addr returns where to go with the next try.
func follow(ctx context.Context, addr func(try int) string, fields ...string) (r reader) {
	cut := time.Now()
	for r.tries = 1; r.tries < 200 && ctx.Err() == nil; r.tries++ {
		q := fields
		if r.last != "" {
			q = append([]string{"Last-Event-ID", r.last}, fields...)
		}
		resp, err := try(ctx, http.MethodPost, addr(r.tries), chat, q...)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if resp.StatusCode != http.StatusOK {
			var refusal struct{ Error struct{ Code string } }
			_ = json.NewDecoder(resp.Body).Decode(&refusal)
			_ = resp.Body.Close()
			if r.code = refusal.Error.Code; r.code == "interrupted" {
				r.end, r.took = "error", time.Since(cut)
				return r
			}
			if resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests {
				return r
			}
			time.Sleep(20 * time.Millisecond)
			continue
		}
		done := r.take(resp.Body)
		_ = resp.Body.Close()
		if done {
			r.took = time.Since(cut)
			return r
		}
		cut = time.Now()
	}
	return r
}

// take takes frames, and reports whether the response has ended.
func (r *reader) take(body io.Reader) bool {
	fr := rig.NewFrameReader(body)
	for {
		f, err := fr.Next()
		if err != nil {
			return false
		}
		var data struct {
			Text  string
			Error struct{ Code string }
		}
		_ = json.Unmarshal([]byte(f.Data), &data)
		r.end = f.Event
		switch f.Event {
		case "reconnect":
			r.last = f.ID
			time.Sleep(50 * time.Millisecond)
			return false
		case "done", "error":
			r.code = data.Error.Code
			return true
		default:
			r.text += data.Text
			r.last = f.ID
		}
	}
}

// equal compares what something is with what it should be.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
