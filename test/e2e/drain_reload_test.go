package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// keptSite is a site with resume.
func keptSite(backend *rig.Backend, drain string) string {
	return fmt.Sprintf(`ADDR {
		llm_stream {
			resume /llm {
				owner anyone
				channel {http.request.header.X-Chat-Id}
			}
			drain {
				spread 200ms
				%s
			}
		}
		reverse_proxy %s
	}`, drain, backend.Addr)
}

// reconnectFrame is the frame of DESIGN.md 4.6, to the byte.
var reconnectFrame = regexp.MustCompile(`(?:^|\n\n)id: ([0-9A-Za-z]{22}):(\d+)\nevent: reconnect\nretry: (\d+)\ndata: \{"reason":"reload","retry_ms":(\d+)\}\n\n$`)

// sentAway reads a body to its clean end, which a reconnect frame stands at,
// and returns the id to come back with and the text before.
func sentAway(t *testing.T, body io.Reader) (id, text string) {
	t.Helper()
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("%v after %q", err, raw)
	}
	m := reconnectFrame.FindStringSubmatch("\n\n" + string(raw))
	if m == nil {
		t.Fatalf("no reconnect frame ends %q", raw)
	}
	retry, _ := strconv.Atoi(m[3])
	if m[3] != m[4] || retry < 1500 || retry > 2500 {
		t.Errorf("retry: %s and %s", m[3], m[4])
	}
	a, fr := new(rig.Answer), rig.NewFrameReader(strings.NewReader(string(raw)))
	for {
		f, err := fr.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Event == "reconnect" {
			if n := len(a.Frames); n > 0 {
				equal(t, "index", m[2], strconv.Itoa(a.Frames[n-1].Index()))
			}
			return m[1] + ":" + m[2], a.Text
		}
		if err := a.Merge(f); err != nil {
			t.Fatal(err)
		}
	}
}

// merged puts an answer together from frames that may stand for several.
func merged(t *testing.T, list []rig.Frame) *rig.Answer {
	t.Helper()
	a := new(rig.Answer)
	for _, f := range list {
		if err := a.Merge(f); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// A client whose response is kept is told to come back, and goes on at the new
// configuration, on the request that it came with or by GET.
func TestReloadReconnects(t *testing.T) {
	for _, by := range []string{"POST", "GET"} {
		t.Run(by, func(t *testing.T) {
			ticks := make(chan struct{})
			backend := rig.NewBackend(t, ticking(20, ticks, make(chan struct{}, 1)))
			c := rig.Start(t, keptSite(backend, "retry 2s"))
			go func() {
				ticks <- struct{}{}
				ticks <- struct{}{}
			}()
			resp := post(`{"stream":true}`).do(t, c)
			c.Load(keptSite(backend, "retry 2001ms"))
			id, text := sentAway(t, resp.Body)
			go func() {
				for range 18 {
					ticks <- struct{}{}
				}
			}()
			q := post(`{"stream":true}`, "Last-Event-ID", id)
			if by == "GET" {
				response, _, _ := strings.Cut(id, ":")
				q = get("/llm/streams/"+response, "Last-Event-ID", id)
			}
			rest := merged(t, frames(t, rig.NewFrameReader(q.do(t, c).Body), -1))
			equal(t, "text", text+rest.Text, wantText(20))
			equal(t, "done", rest.Done != nil, true)
			equal(t, "upstream calls", backend.Calls.Load(), 1)
		})
	}
}

// A client that has had nothing yet comes back with the index 0.
func TestReloadBeforeFirstToken(t *testing.T) {
	ticks := make(chan struct{})
	backend := rig.NewBackend(t, ticking(3, ticks, make(chan struct{}, 1)))
	c := rig.Start(t, keptSite(backend, "retry 2s"))
	_, end := observe(t, manyClients, "http://"+c.Addr, post(`{"stream":true}`), true)
	eventually(t, "the backend is called", func() bool { return backend.Calls.Load() == 1 })
	c.Load(keptSite(backend, "retry 2001ms"))
	s := <-end
	if s.err != nil {
		t.Fatal(s.err)
	}
	id, _ := sentAway(t, strings.NewReader(s.raw))
	equal(t, "id", id, s.resp.Header.Get("X-Response-Id")+":0")
	go func() {
		for range 3 {
			ticks <- struct{}{}
		}
	}()
	again := post(`{"stream":true}`, "Last-Event-ID", id).do(t, c)
	equal(t, "text", merged(t, frames(t, rig.NewFrameReader(again.Body), -1)).Text, wantText(3))
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// An EventSource that follows a channel comes back by itself, over and over,
// and misses nothing.
func TestReloadSendsChannelFollowers(t *testing.T) {
	const words, reloads = 60, 5
	ticks := make(chan struct{})
	backend := rig.NewBackend(t, ticking(words, ticks, make(chan struct{}, 1)))
	c := rig.Start(t, keptSite(backend, "retry 100ms"))
	returns := make(chan struct{})
	heard := make(chan string, 1)
	go func() { heard <- followChannel(t, c, returns) }()
	<-returns // it is there
	_, producing := observe(t, manyClients, "http://"+c.Addr, post(`{"stream":true}`, "X-Chat-Id", "c1"), false)
	for i := range words {
		ticks <- struct{}{}
		if i%(words/reloads) == 0 {
			c.Load(keptSite(backend, fmt.Sprintf("retry %dms", 101+i)))
			<-returns
		}
	}
	equal(t, "text", <-heard, wantText(words))
	checkReason(t, <-producing, "reload")
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// followChannel follows a channel as an EventSource does, but without waiting,
// until a response has ended, and returns its text. It tells of each time that
// it comes.
func followChannel(t *testing.T, c *rig.Caddy, comes chan<- struct{}) string {
	t.Helper()
	text, last := "", ""
	for {
		resp, err := get("/llm/channels/c1?follow=1", "Accept", "text/event-stream", "Last-Event-ID", last).try(t.Context(), c)
		if err != nil {
			return err.Error()
		}
		comes <- struct{}{}
		fr := rig.NewFrameReader(resp.Body)
		for f, err := fr.Next(); err == nil; f, err = fr.Next() {
			var data struct{ Text string }
			_ = json.Unmarshal([]byte(f.Data), &data)
			text += data.Text
			if f.ID != "" {
				last = f.ID
			}
			if f.Event == "ended" {
				_ = resp.Body.Close()
				return text
			}
		}
		_ = resp.Body.Close()
	}
}

// What is bound to its connection, and what is told to stay, finishes uncut on
// the old configuration.
func TestReloadLeavesTheRest(t *testing.T) {
	for name, options := range map[string]string{
		"plain":         "",
		"tied":          "slow_client disconnect",
		"passthrough":   "emit passthrough",
		"on_reload off": "resume /llm\ndrain {\nspread 1ms\non_reload off\n}",
	} {
		t.Run(name, func(t *testing.T) {
			ticks := make(chan struct{})
			c, backend := serve(t, options, ticking(20, ticks, make(chan struct{}, 1)))
			begun, end := observe(t, manyClients, "http://"+c.Addr, post(`{"stream":true}`), true)
			ticks <- struct{}{}
			<-begun
			for i := range 3 {
				c.Load(fmt.Sprintf("ADDR {\nheader X-Reload %d\nllm_stream {\n%s\n}\nreverse_proxy %s\n}", i, options, backend.Addr))
				time.Sleep(50 * time.Millisecond)
				ticks <- struct{}{}
			}
			for range 16 {
				ticks <- struct{}{}
			}
			s := <-end
			if s.err != nil || strings.Contains(s.raw, "reconnect") {
				t.Fatalf("%v after %q", s.err, s.raw)
			}
			if name == "passthrough" {
				equal(t, "end", strings.HasSuffix(s.raw, rig.Stop), true)
			} else {
				equal(t, "text", rig.ReadAnswer(t, strings.NewReader(s.raw)).Text, wantText(20))
			}
			equal(t, "upstream calls", backend.Calls.Load(), 1)
		})
	}
}

// Where the next configuration does not take the responses over, no client is
// sent to it, for there a second generation might begin.
func TestReloadWithoutSuccessor(t *testing.T) {
	for name, next := range map[string]string{
		"removed":       "ADDR {\nreverse_proxy BACKEND\n}",
		"no resume":     "ADDR {\nllm_stream\nreverse_proxy BACKEND\n}",
		"another site":  "http://" + rig.FreeAddr(t) + " {\nllm_stream {\nresume /llm\n}\nreverse_proxy BACKEND\n}",
		"other prefix":  "ADDR {\nllm_stream {\nresume /other {\nowner anyone\nchannel {http.request.header.X-Chat-Id}\n}\n}\nreverse_proxy BACKEND\n}",
		"nothing there": "ADDR {\nrespond gone 410\n}",
		"other matcher": "ADDR {\nllm_stream /v2/* {\nresume /llm {\nowner anyone\nchannel {http.request.header.X-Chat-Id}\n}\n}\nreverse_proxy BACKEND\n}",
	} {
		t.Run(name, func(t *testing.T) {
			ticks := make(chan struct{})
			backend := rig.NewBackend(t, ticking(10, ticks, make(chan struct{}, 1)))
			c := rig.Start(t, keptSite(backend, "retry 2s"))
			url := "http://" + c.Addr
			joined, channel := observe(t, manyClients, url, get("/llm/channels/c1", "Accept", "text/event-stream"), false)
			go func() { ticks <- struct{}{} }()
			resp := post(`{"stream":true}`, "X-Chat-Id", "c1").do(t, c)
			fr := rig.NewFrameReader(resp.Body)
			f := frames(t, fr, 1)[0]
			id, _, _ := strings.Cut(f.ID, ":")
			followed, follower := observe(t, manyClients, url, get("/llm/streams/"+id, "Accept", "text/event-stream"), false)
			<-joined
			<-followed
			c.Load(strings.ReplaceAll(next, "BACKEND", backend.Addr))
			// its client learns that the channel is no longer there
			checkReason(t, <-channel, "reload")
			if name == "other prefix" { // the client that asked can go on there
				last, _ := sentAway(t, resp.Body)
				fr = rig.NewFrameReader(post(`{"stream":true}`, "Last-Event-ID", last).do(t, c).Body)
			}
			go func() {
				for range 9 {
					ticks <- struct{}{}
				}
			}()
			rest := merged(t, frames(t, fr, -1))
			equal(t, "done", rest.Done != nil, true)
			equal(t, "text", "t0 "+rest.Text, wantText(10))
			s := <-follower
			equal(t, "error of the follower", s.err, nil)
			equal(t, "text of the follower", merged(t, s.frames).Text, wantText(10))
			equal(t, "upstream calls", backend.Calls.Load(), 1)
		})
	}
}

// Where one of two sites that look alike loses the directive, no client is sent
// away that might not find its response again.
func TestReloadOfOneOfTwoSites(t *testing.T) {
	ticks := make(chan struct{})
	backend := rig.NewBackend(t, ticking(10, ticks, nil))
	site := keptSite(backend, "retry 2s")
	_, port, _ := net.SplitHostPort(rig.FreeAddr(t))
	here, there := "http://127.0.0.1:"+port+" {", "http://a.test:"+port+" {"
	other := strings.Replace(site, "ADDR {", there, 1)
	c := rig.Start(t, strings.Replace(site, "ADDR {", here, 1)+"\n"+other)
	c.Addr = "127.0.0.1:" + port
	go func() { ticks <- struct{}{} }()
	resp := post(`{"stream":true}`).do(t, c)
	c.Load(here + "\nreverse_proxy " + backend.Addr + "\n}\n" + other)
	go func() {
		for range 9 {
			ticks <- struct{}{}
		}
	}()
	got := merged(t, frames(t, rig.NewFrameReader(resp.Body), -1))
	equal(t, "done", got.Done != nil, true)
	equal(t, "text", got.Text, wantText(10))
}

// checkReason checks that a client was sent away for a reason.
func checkReason(t *testing.T, s *seen, reason string) {
	t.Helper()
	var data struct{ Reason string }
	_ = json.Unmarshal([]byte(s.last().Data), &data)
	if s.err != nil || s.last().Event != "reconnect" || data.Reason != reason {
		t.Errorf("%v after %+v", s.err, s.last())
	}
}

// The next configuration knows how many streams there are, and which request
// has been made.
func TestReloadKeepsCountsAndKeys(t *testing.T) {
	u := newUnhurried()
	backend := rig.NewBackend(t, u.ServeHTTP)
	options := func(places int) string {
		return fmt.Sprintf("ADDR {\nllm_stream {\nmax_streams all %d\nresume /llm\ndrain {\nspread 50ms\n}\n}\nreverse_proxy %s\n}", places, backend.Addr)
	}
	c := rig.Start(t, options(2))
	var first []*http.Response
	for _, key := range []string{"k1", "k2"} {
		first = append(first, post(`{"stream":true}`, "Idempotency-Key", key).do(t, c))
	}
	c.Load(options(3))
	ids := make(map[string]bool)
	for _, resp := range first {
		id, _ := sentAway(t, resp.Body)
		id, _, _ = strings.Cut(id, ":")
		ids[id] = true
	}
	again := post(`{"stream":true}`, "Idempotency-Key", "k1").do(t, c)
	equal(t, "attached to the running one", ids[again.Header.Get("X-Response-Id")], true)
	equal(t, "the third", post(`{"stream":true}`, "Idempotency-Key", "k3").do(t, c).StatusCode, http.StatusOK)
	turnedAwayWith(t, post(`{"stream":true}`, "Idempotency-Key", "k4").do(t, c), "too_many_streams")
	equal(t, "upstream calls", backend.Calls.Load(), 3)
	close(u.release)
	eventually(t, "there are places again", func() bool {
		resp := post(`{"stream":true}`).do(t, c)
		return resp.StatusCode == http.StatusOK && rig.ReadAnswer(t, resp.Body).Done != nil
	})
}
