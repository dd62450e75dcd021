package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A response that A produces is resumed at B after every event of it, while it
// runs and when it has ended.
func TestResumeEverywhere(t *testing.T) {
	const n = 12
	c := start(t, 2, longGrace, words(n, 30*time.Millisecond))
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	first := c.call(t.Context(), http.MethodPost, a, chat)
	id := first.Header.Get("X-Response-Id")
	var whole []rig.Frame
	var running sync.WaitGroup
	resume := func(k int) {
		resp := c.call(t.Context(), http.MethodPost, b, chat, "Last-Event-ID", fmt.Sprintf("%s:%d", id, k))
		if k == n+1 {
			equal(t, "status after the end", resp.StatusCode, http.StatusNoContent)
			return
		}
		equal(t, "status", resp.StatusCode, http.StatusOK)
		got := new(rig.Answer)
		fr := rig.NewFrameReader(resp.Body)
		last := k
		for {
			f, err := fr.Next()
			if err != nil {
				break
			}
			if f.Index() <= last {
				t.Errorf("after %d: frame %+v", last, f)
			}
			last = f.Index()
			if err := got.Merge(f); err != nil {
				t.Error(err)
			}
		}
		if want := text(n)[len(text(k)):]; k <= n && got.Text != want {
			t.Errorf("resumed at %d: %q, want %q", k, got.Text, want)
		}
		if got.Done == nil {
			t.Errorf("resumed at %d: no done frame", k)
		}
	}
	fr := rig.NewFrameReader(first.Body)
	for k := range n + 1 {
		whole = append(whole, frames(t, fr, 1)...)
		running.Go(func() { resume(k) })
	}
	running.Wait()
	for k := range n + 2 {
		resume(k)
	}
	equal(t, "frames", len(whole), n+1)
	equal(t, "upstream calls", c.backend.Calls.Load(), 1)
	bad := c.call(t.Context(), http.MethodPost, b, chat, "Last-Event-ID", fmt.Sprintf("%s:%d", id, n+2))
	equal(t, "status for a cursor beyond the end", bad.StatusCode, http.StatusBadRequest)
	none := c.call(t.Context(), http.MethodPost, b, chat, "Last-Event-ID", strings.Repeat("0", 22)+":0")
	equal(t, "status for an unknown response", none.StatusCode, http.StatusNotFound)
}

// In every dialect a follower at B gets what the client at A gets, while the
// response runs and when it has ended.
func TestDialects(t *testing.T) {
	c := start(t, 2, longGrace, words(20, 10*time.Millisecond))
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	for _, dialect := range []string{"text", "plain", "openai", "anthropic", "ai-sdk"} {
		t.Run(dialect, func(t *testing.T) {
			resp := c.call(t.Context(), http.MethodPost, a, chat, "X-Dialect", dialect)
			path := "/llm/streams/" + resp.Header.Get("X-Response-Id")
			live := make(chan string, 1)
			go func() { live <- read(t, c.call(t.Context(), http.MethodGet, b, path).Body) }()
			local := read(t, resp.Body)
			kept := read(t, c.call(t.Context(), http.MethodGet, b, path).Body)
			here := read(t, c.call(t.Context(), http.MethodGet, a, path).Body)
			if joined(kept) != joined(here) {
				t.Errorf("replay at B: %q, at A: %q", kept, here)
			}
			if got := <-live; joined(got) != joined(local) {
				t.Errorf("live at B: %q, at A: %q", got, local)
			}
		})
	}
	equal(t, "upstream calls", c.backend.Calls.Load(), 5)
}

// joined is what is left of a body where deltas are merged in another way: its
// words, its model and its finish.
func joined(body string) string {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprint(&b, strings.Count(body, word(i)), " ")
	}
	return b.String() + fmt.Sprint(strings.Contains(body, `"model":"m"`), strings.Contains(body, "stop"))
}

// Two replicas that get the same call at once make it once.
func TestKeyAtTwoReplicas(t *testing.T) {
	c := start(t, 2, longGrace, words(20, 20*time.Millisecond))
	var running sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		running.Go(func() {
			resp := c.call(t.Context(), http.MethodPost, c.nodes[i%2].Addr, chat, "Idempotency-Key", "k")
			ids[i] = resp.Header.Get("X-Response-Id")
			r := new(reader)
			if !r.take(resp.Body) || r.text != text(20) || r.end != "done" {
				t.Errorf("client %d: %+v", i, r)
			}
		})
	}
	running.Wait()
	for _, id := range ids {
		equal(t, "response", id, ids[0])
	}
	equal(t, "upstream calls", c.backend.Calls.Load(), 1)
}

// A cancel at B ends the call that A makes; every follower gets the end.
func TestCancelElsewhere(t *testing.T) {
	left := make(chan time.Time, 8)
	c := start(t, 2, longGrace, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("one "))
		<-r.Context().Done()
		left <- time.Now()
	})
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	for _, by := range []string{"id", "key"} {
		fields := []string{"Idempotency-Key", "key of " + by}
		resp := c.call(t.Context(), http.MethodPost, a, chat, fields...)
		id := resp.Header.Get("X-Response-Id")
		path := "/llm/cancel/" + id
		if by == "key" {
			path = "/llm/cancel?idempotency_key=key+of+key"
		}
		asked := time.Now()
		answer := c.call(t.Context(), http.MethodPost, b, path)
		equal(t, "status of the cancel", answer.StatusCode, http.StatusOK)
		if body := read(t, answer.Body); !strings.Contains(body, `"cancelled"`) || !strings.Contains(body, id) {
			t.Errorf("answer %q", body)
		}
		if took := (<-left).Sub(asked); took > 500*time.Millisecond {
			t.Errorf("the upstream is cancelled after %v", took)
		}
		r := new(reader)
		if !r.take(resp.Body) || r.end != "done" || r.text != "one " {
			t.Errorf("client at A: %+v", r)
		}
	}
	unknown := c.call(t.Context(), http.MethodPost, b, "/llm/cancel/"+strings.Repeat("0", 22))
	equal(t, "status for an unknown response", unknown.StatusCode, http.StatusNotFound)
}

// A client at B keeps a response of A running whose own client has left; and
// without clients anywhere it is cancelled.
func TestGraceElsewhere(t *testing.T) {
	left := make(chan time.Time, 1)
	c := start(t, 2, "1500ms", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("one "))
		<-r.Context().Done()
		left <- time.Now()
	})
	first := c.call(t.Context(), http.MethodPost, c.nodes[0].Addr, chat)
	id := first.Header.Get("X-Response-Id")
	frames(t, rig.NewFrameReader(first.Body), 1)
	second := c.call(t.Context(), http.MethodGet, c.nodes[1].Addr, "/llm/streams/"+id)
	frames(t, rig.NewFrameReader(second.Body), 1)
	_ = first.Body.Close()
	select {
	case <-left:
		t.Fatal("the upstream is cancelled though a client follows at B")
	case <-time.After(4 * time.Second):
	}
	_ = second.Body.Close()
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Error("the upstream is not cancelled though nobody follows")
	}
}

// When A is killed, its clients get the end of its responses at B, and no word
// twice. What they have had is a prefix.
func TestKill(t *testing.T) {
	c := start(t, 2, longGrace, words(1000, 20*time.Millisecond))
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	const clients = 20
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			addr := func(try int) string {
				if try == 1 {
					return a
				}
				return b
			}
			r := follow(t.Context(), addr)
			if r.end != "error" || r.code != "interrupted" {
				t.Errorf("client %d: ends with %s %s after %d tries", i, r.end, r.code, r.tries)
			}
			if !strings.HasPrefix(text(1000), r.text) || r.text == "" {
				t.Errorf("client %d has had %q", i, r.text)
			}
			if r.took > 10*time.Second {
				t.Errorf("client %d is told after %v", i, r.took)
			}
		})
	}
	c.awaitCalls(clients)
	time.Sleep(500 * time.Millisecond)
	c.nodes[0].Signal(os.Kill)
	running.Wait()
}

// A pause of A that its lease survives loses nothing for a client at B.
func TestPause(t *testing.T) {
	c := start(t, 2, longGrace, words(100, 20*time.Millisecond))
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	first := c.call(t.Context(), http.MethodPost, a, chat)
	id := first.Header.Get("X-Response-Id")
	second := c.call(t.Context(), http.MethodGet, b, "/llm/streams/"+id)
	time.Sleep(300 * time.Millisecond)
	c.nodes[0].Signal(syscall.SIGSTOP)
	time.Sleep(time.Second)
	c.nodes[0].Signal(syscall.SIGCONT)
	for _, resp := range []*http.Response{first, second} {
		r := new(reader)
		if !r.take(resp.Body) || r.end != "done" || r.text != text(100) {
			t.Errorf("ends with %s after %q", r.end, r.text)
		}
	}
}

// A pause of A beyond its lease ends its response for all, everywhere alike.
func TestLongPause(t *testing.T) {
	c := start(t, 2, longGrace, words(1000, 20*time.Millisecond))
	a, b := c.nodes[0].Addr, c.nodes[1].Addr
	first := c.call(t.Context(), http.MethodPost, a, chat)
	id := first.Header.Get("X-Response-Id")
	second := c.call(t.Context(), http.MethodGet, b, "/llm/streams/"+id)
	time.Sleep(300 * time.Millisecond)
	paused := time.Now()
	c.nodes[0].Signal(syscall.SIGSTOP)
	there := new(reader)
	if !there.take(second.Body) || there.code != "interrupted" || !strings.HasPrefix(text(1000), there.text) {
		t.Errorf("at B: %s %s after %q", there.end, there.code, there.text)
	}
	if took := time.Since(paused); took > 10*time.Second {
		t.Errorf("B tells after %v", took)
	}
	c.nodes[0].Signal(syscall.SIGCONT)
	here := new(reader)
	if !here.take(first.Body) || here.code != "interrupted" || !strings.HasPrefix(here.text, there.text) {
		t.Errorf("at A: %s %s after %q", here.end, here.code, here.text)
	}
}

// Replicas are replaced one after another under streams: nothing is lost or
// repeated, and no call is made twice.
func TestRollingRestart(t *testing.T) {
	const n = 250
	c := start(t, 3, longGrace, words(n, 20*time.Millisecond))
	var mu sync.Mutex
	up := make([]string, 0, len(c.nodes))
	for _, node := range c.nodes {
		up = append(up, node.Addr)
	}
	next := 0
	addr := func(int) string { // as a balancer does that knows who is ready
		mu.Lock()
		defer mu.Unlock()
		next++
		return up[next%len(up)]
	}
	const clients = 60
	var running sync.WaitGroup
	results := make([]reader, clients)
	for i := range clients {
		running.Go(func() { results[i] = follow(t.Context(), addr) })
	}
	c.awaitCalls(clients)
	for i := range 2 {
		old := c.nodes[i]
		fresh := rig.StartProcess(t, c.file)
		mu.Lock()
		up[i] = fresh.Addr
		mu.Unlock()
		old.Signal(syscall.SIGTERM)
		time.Sleep(700 * time.Millisecond)
	}
	running.Wait()
	moved := 0
	for i, r := range results {
		if r.text != text(n) || r.end != "done" {
			t.Errorf("client %d: %s %s after %d tries and %d bytes", i, r.end, r.code, r.tries, len(r.text))
		}
		if r.tries > 1 {
			moved++
		}
	}
	t.Logf("%d of %d clients were moved", moved, clients)
	if moved < clients/3 {
		t.Errorf("only %d clients were moved", moved)
	}
	equal(t, "upstream calls", c.backend.Calls.Load(), clients)
	for i := range 2 {
		if code, _, err := c.nodes[i].Exited(10 * time.Second); err != nil || code != 0 {
			t.Errorf("replica %d: code %d, %v", i, code, err)
		}
	}
}
