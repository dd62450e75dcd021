package e2e_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// endings is a backend whose answer ends as the request says.
func endings(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	end := r.Header.Get("X-End")
	switch end {
	case "silent":
		<-r.Context().Done()
		return
	case "refused":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case "JSON":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[]}`)
		return
	case "unknown":
		rig.EventStream(w)
		rig.Say(w, "data: {\"jsonrpc\":\"2.0\"}\n\n")
		return
	}
	rig.EventStream(w)
	if end == "nothing" {
		return
	}
	rig.Say(w, rig.Chunk("a"), rig.Chunk("b"))
	switch end {
	case "done":
		rig.Say(w, rig.Stop)
	case "error":
		rig.Say(w, "data: {\"error\":{\"message\":\"x\"}}\n\n")
	case "abort":
		panic(http.ErrAbortHandler)
	case "hanging":
		<-r.Context().Done()
	case "open":
		rig.Say(w, rig.Stop)
		<-r.Context().Done()
	}
}

// lot is one response with its clients, all at random.
func lot(ctx context.Context, c *rig.Caddy, rng *rand.Rand) (id string) {
	ends := []string{"done", "error", "abort", "hanging", "open", "silent", "nothing", "refused", "JSON", "unknown"}
	q := post(`{"stream":true}`, "X-End", ends[rng.IntN(len(ends))])
	if q.header.Get("X-End") == "unknown" {
		q.path = "/mcp"
	}
	if rng.IntN(2) == 0 {
		q.header.Set("Idempotency-Key", fmt.Sprint(rng.IntN(50)))
	}
	if rng.IntN(2) == 0 {
		q.header.Set("X-Chat-Id", fmt.Sprint(rng.IntN(20)))
	}
	patience := time.Duration(5+rng.IntN(50)) * time.Millisecond
	if rig.Race {
		patience *= 5
	}
	ctx, leave := context.WithTimeout(ctx, patience)
	defer leave() // at the latest: some answers have no end
	resp, err := q.try(ctx, c)
	if err != nil {
		return "" // it left before the header, as it may
	}
	defer func() { _ = resp.Body.Close() }()
	id = resp.Header.Get("X-Response-Id")
	switch what := rng.IntN(6); {
	case id == "" || what < 2: // reads it all
		_, _ = io.Copy(io.Discard, resp.Body)
	case what == 2: // leaves
	case what == 3: // cancels
		cancel, err := request{method: http.MethodPost, path: "/llm/cancel/" + id}.try(ctx, c)
		if err == nil {
			_ = cancel.Body.Close()
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	default: // is followed, and comes back
		for _, q := range []request{get("/llm/streams/" + id), post("", "Last-Event-ID", id+":1"), get("/llm/channels/1?follow=1")} {
			follower, err := q.try(ctx, c)
			if err == nil {
				_, _ = io.CopyN(io.Discard, follower.Body, int64(rng.IntN(200)))
				_ = follower.Body.Close()
			}
		}
	}
	return id
}

// However responses and clients end, nothing of them is left: no goroutine, no
// entry, no memory (ollama#17131, ferro-labs/ai-gateway#293).
func TestNothingIsLeft(t *testing.T) {
	responses := 10_000
	if rig.Race {
		responses = 2_000
	}
	backend := rig.NewBackend(t, endings)
	c := rig.Start(t, `ADDR {
		llm_stream {
			resume /llm {
				keep    10ms
				grace   10ms
				owner   anyone
				channel {http.request.header.X-Chat-Id}
			}
			drain {
				spread 1ms
				retry  1ms
			}
		}
		reverse_proxy `+backend.Addr+` {
			transport http {
				keepalive off
			}
		}
	}`)
	many(t, c, 300) // what is begun once and stays
	settled(t, c, nil)
	goroutines, memory, logged := runtime.NumGoroutine(), heap(), len(c.Logs())
	ids := many(t, c, responses)
	settled(t, c, ids)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := runtime.NumGoroutine() - goroutines
		if left <= 2 {
			break
		}
		if time.Now().After(deadline) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("%d more goroutines than before\n%s", left, stacks.String())
		}
	}
	logs := 2 * int64(len(c.Logs())-logged) // they are kept, in a buffer with room
	if grown := heap() - memory - logs; grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if len(ids) == 0 {
		t.Error("no response has begun")
	}
	t.Logf("%d responses, %d with an id, %d upstream calls", responses, len(ids), backend.Calls.Load())
}

// many makes n lots, some at a time, and returns the ids of the responses.
func many(t *testing.T, c *rig.Caddy, n int) []string {
	t.Helper()
	const atATime = 16
	var mu sync.Mutex
	var ids []string
	var wg sync.WaitGroup
	for worker := range atATime {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), uint64(n)))
			for range n / atATime {
				if id := lot(t.Context(), c, rng); id != "" {
					mu.Lock()
					ids = append(ids, id)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return ids
}

// settled waits until nothing is held any more, not even the ids.
func settled(t *testing.T, c *rig.Caddy, ids []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		held := stateNow(t)
		for len(ids) > 0 && !remembers(t, c, ids[0]) {
			ids = ids[1:]
		}
		if held == (state{}) && len(ids) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are still %+v, and %d ids", held, len(ids))
		}
	}
}
