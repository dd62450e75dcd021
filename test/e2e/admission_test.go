package e2e_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// gate is a backend that lets its calls begin and end as the test wants.
type gate struct {
	running atomic.Int64
	peak    atomic.Int64
	release chan struct{} // a value ends one call
}

func newGate() *gate { return &gate{release: make(chan struct{})} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	n := g.running.Add(1)
	defer g.running.Add(-1)
	for {
		if peak := g.peak.Load(); n <= peak || g.peak.CompareAndSwap(peak, n) {
			break
		}
	}
	rig.EventStream(w)
	rig.Say(w, rig.Chunk("x"))
	select {
	case <-g.release:
		rig.Say(w, rig.Stop)
	case <-r.Context().Done():
	}
}

// eventually waits, with a bound, until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

// turnedAwayWith checks that a request is turned away with a code and a useful time
// to come back.
func turnedAwayWith(t *testing.T, resp *http.Response, code string) {
	t.Helper()
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || err != nil || after < 1 || after > 60 {
		t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	equal(t, "code", errorCode(t, resp), code)
}

func TestTooManyStreams(t *testing.T) {
	g := newGate()
	c, _ := serve(t, "max_streams 1", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			g.ServeHTTP(w, r)
		}
	})
	first := post(`{}`).do(t, c)
	turnedAwayWith(t, post(`{}`).do(t, c), "too_many_streams")
	// what cannot generate does not count (llama-swap#860)
	resp := get("/v1/models").do(t, c)
	equal(t, "status of a GET", resp.StatusCode, http.StatusOK)
	g.release <- struct{}{}
	rig.ReadAnswer(t, first.Body)
	eventually(t, "the place is free", func() bool {
		resp = post(`{}`).do(t, c)
		return resp.StatusCode == http.StatusOK
	})
	g.release <- struct{}{}
	equal(t, "text", rig.ReadAnswer(t, resp.Body).Text, "x")
}

// llama-swap#772, dario#86: full, too late, and left.
func TestQueue(t *testing.T) {
	g := newGate()
	c, _ := serve(t, "max_streams 1 {\nqueue 2 300ms\n}", g.ServeHTTP)
	first := post(`{}`).do(t, c)
	answers := make(chan *http.Response, 2)
	ask := func(ctx context.Context) {
		resp, err := post(`{}`).try(ctx, c)
		if err != nil {
			resp = nil
		}
		answers <- resp
	}
	ctx, leave := context.WithCancel(t.Context())
	at := time.Now()
	go ask(ctx)
	go ask(t.Context())
	eventually(t, "the queue is full", func() bool { return stateNow(t).Queued == 2 })
	turnedAwayWith(t, post(`{}`).do(t, c), "queue_full")
	leave()
	if resp := <-answers; resp != nil {
		t.Fatal("who has left was answered")
	}
	eventually(t, "the place in the queue is free", func() bool { return stateNow(t).Queued == 1 })
	late := <-answers
	if late == nil {
		t.Fatal("no answer")
	}
	defer func() { _ = late.Body.Close() }()
	turnedAwayWith(t, late, "queue_timeout")
	within(t, "waiting", time.Since(at), 300*time.Millisecond)
	g.release <- struct{}{}
	equal(t, "text", rig.ReadAnswer(t, first.Body).Text, "x")
}

func TestPerKey(t *testing.T) {
	g := newGate()
	c, _ := serve(t, "max_streams off {\nper {http.request.header.X-User} 1\n}", g.ServeHTTP)
	alice := post(`{}`, "X-User", "alice").do(t, c)
	turnedAwayWith(t, post(`{}`, "X-User", "alice").do(t, c), "key_limit")
	bob := post(`{}`, "X-User", "bob").do(t, c)
	nobody := post(`{}`).do(t, c)
	turnedAwayWith(t, post(`{}`).do(t, c), "key_limit")
	for range 3 {
		g.release <- struct{}{}
	}
	for _, resp := range []*http.Response{alice, bob, nobody} {
		equal(t, "text", rig.ReadAnswer(t, resp.Body).Text, "x")
	}
}

// One name is one limit on all sites; a reload keeps the count, also when the
// number changes.
func TestLimitsAreSharedAndSurviveReloads(t *testing.T) {
	g := newGate()
	backend := rig.NewBackend(t, g.ServeHTTP)
	config := func(n int, path string) string {
		return fmt.Sprintf("ADDR {\n\tllm_stream %s {\n\t\tmax_streams gpu %d\n\t}\n\tllm_stream /v2/* {\n\t\tmax_streams gpu %d\n\t}\n\treverse_proxy %s\n}",
			path, n, n, backend.Addr)
	}
	c := rig.Start(t, config(2, "/v1/*"))
	first := post(`{}`).do(t, c)
	second := request{method: "POST", path: "/v2/chat/completions", body: "{}"}.do(t, c)
	turnedAwayWith(t, post(`{}`).do(t, c), "too_many_streams")
	c.Load(config(3, "/v1/*"))
	third := post(`{}`).do(t, c)
	turnedAwayWith(t, post(`{}`).do(t, c), "too_many_streams")
	c.Load(config(1, "/v1/chat/*"))
	for range 2 {
		g.release <- struct{}{}
	}
	eventually(t, "two have ended", func() bool { return g.running.Load() == 1 })
	turnedAwayWith(t, post(`{}`).do(t, c), "too_many_streams")
	g.release <- struct{}{}
	for _, resp := range []*http.Response{first, second, third} {
		equal(t, "text", rig.ReadAnswer(t, resp.Body).Text, "x")
	}
	if err := c.TryLoad("ADDR {\n\tllm_stream /a {\n\t\tmax_streams gpu 1\n\t}\n\tllm_stream /b {\n\t\tmax_streams gpu 2\n\t}\n}"); err == nil {
		t.Error("two numbers under one name were taken")
	}
}

// Whatever way a generation ends, its place is free: litellm#30020, #20256,
// #39309.
func TestPlacesAreAlwaysGivenBack(t *testing.T) {
	const places, rounds, workers = 8, 1000, 6
	ends := map[string]func(http.ResponseWriter, *http.Request){
		"good": func(w http.ResponseWriter, _ *http.Request) { rig.EventStream(w); rig.Say(w, rig.Chunk("x")+rig.Stop) },
		"abort": func(w http.ResponseWriter, _ *http.Request) {
			rig.EventStream(w)
			rig.Say(w, rig.Chunk("x"))
			panic(http.ErrAbortHandler)
		},
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"json":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"midstream": func(w http.ResponseWriter, r *http.Request) {
			rig.EventStream(w)
			rig.Say(w, rig.Chunk("x"))
			<-r.Context().Done()
		},
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			rig.EventStream(w)
			rig.Say(w, rig.Chunk("x"))
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		},
	}
	names := keys(ends)
	for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm {\ngrace 100ms\n}\n" + quickDrain, "tied": "slow_client disconnect\n"} {
		t.Run(mode, func(t *testing.T) {
			g := newGate()
			backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
				if end := ends[r.Header.Get("X-End")]; end != nil {
					_, _ = io.Copy(io.Discard, r.Body)
					end(w, r)
					return
				}
				g.ServeHTTP(w, r)
			})
			config := func(timeouts string) string {
				return fmt.Sprintf("ADDR {\nllm_stream {\n%smax_streams all %d {\nqueue %d 10s\n}\n%s\n}\nreverse_proxy %s\n}",
					options, places, workers, timeouts, backend.Addr)
			}
			c := rig.Start(t, config("timeouts {\nfirst_token 40ms\nbetween_tokens 40ms\n}"))
			var wg sync.WaitGroup
			for worker := range workers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(worker), 1))
					for range rounds / 3 / workers {
						ctx, cancel := context.WithCancel(t.Context())
						if rng.IntN(3) == 0 { // the client leaves at some moment
							time.AfterFunc(time.Duration(rng.IntN(30))*time.Millisecond, cancel)
						}
						resp, err := post(`{"stream":true}`, "X-End", names[rng.IntN(len(names))]).try(ctx, c)
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
						cancel()
					}
				})
			}
			wg.Wait()
			c.Load(config("")) // the count goes on
			var last []*http.Response
			for range places {
				last = append(last, post(`{}`, "Accept", "text/event-stream").do(t, c))
			}
			eventually(t, "all places are taken again", func() bool { return g.running.Load() == places })
			for range places {
				g.release <- struct{}{}
			}
			for _, resp := range last {
				equal(t, "text", rig.ReadAnswer(t, resp.Body).Text, "x")
			}
		})
	}
}

// 2,000 clients at once with 200 places: 200 run, the queue waits, the rest is
// told so without delay.
func TestManyAtOnce(t *testing.T) {
	const places, queue, clients = 200, 100, 2000
	g := newGate()
	c, _ := serve(t, fmt.Sprintf("max_streams %d {\nqueue %d 30s\n}", places, queue), g.ServeHTTP)
	var running, turnedAwayError atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			resp, err := post(`{}`).try(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			switch resp.StatusCode {
			case http.StatusOK:
				running.Add(1)
			case http.StatusTooManyRequests:
				turnedAwayError.Add(1)
			default:
				t.Errorf("status %d", resp.StatusCode)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	eventually(t, "everybody has an answer or waits", func() bool {
		return turnedAwayError.Load() == clients-places-queue && g.running.Load() == places
	})
	for range places + queue {
		g.release <- struct{}{}
	}
	wg.Wait()
	equal(t, "served", running.Load(), places+queue)
	equal(t, "at a time", g.peak.Load(), places)
}

// A client that asks again as soon as it has had its answer finds no place taken by
// itself, whatever the way of the response.
func TestOneAfterTheOther(t *testing.T) {
	for way, options := range map[string]string{"attached": "", "tied": "slow_client drop", "resume": "resume /llm", "passthrough": "emit passthrough"} {
		t.Run(way, func(t *testing.T) {
			c, _ := serve(t, "max_streams 1\n"+options, whole3)
			for range 300 {
				resp := post(`{"stream":true}`).do(t, c)
				if _, err := body(t, resp); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(resp.StatusCode, err)
				}
			}
		})
	}
}
