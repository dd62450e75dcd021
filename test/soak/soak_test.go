package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const (
	clients    = 24
	maxStreams = 16
	// idleGoroutines is how many a Caddy has that does nothing.
	idleGoroutines = 30
	deadline       = 3 * time.Second // of the drain
)

// caddyfile is the site. BACKEND stands for the backend, BEAT for what a reload
// changes.
const caddyfile = `{
	llm_stream {
		max_memory 256MiB
	}
}
ADDR {
	handle_path /bound/* {
		llm_stream {
			max_streams soak 16 {
				queue 8 200ms
			}
			heartbeat BEAT
			timeouts {
				first_token 10s
				between_tokens 3s
			}
			drain {
				deadline 3s
			}
		}
		reverse_proxy BACKEND {
			transport http {
				keepalive 1s # those of superseded configurations stay that long
			}
		}
	}
	handle {
		llm_stream {
			max_streams soak 16 {
				queue 8 200ms
			}
			heartbeat BEAT
			timeouts {
				first_token 10s
				between_tokens 3s
			}
			resume /llm {
				keep  3s
				grace 5s
			}
			drain {
				deadline 3s
				spread   200ms
				retry    100ms
			}
		}
		reverse_proxy BACKEND {
			transport http {
				keepalive 1s # those of superseded configurations stay that long
			}
		}
	}
}`

// soak is one run.
type soak struct {
	*testing.T
	addr    string
	caddy   *rig.Process
	backend *backend
	client  *http.Client
	exiting atomic.Bool

	mu     sync.Mutex
	counts map[string]int
	broken []string
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// breaks notes a broken invariant.
func (s *soak) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken = append(s.broken, err.Error()); len(s.broken) <= 20 {
		s.Error(err)
	}
}

// level is what the process holds at one moment.
type level struct {
	Streams, Clients, Running, Kept, Queued int
	heap                                    float64
	goroutines                              float64
}

// level asks the process.
func (s *soak) level(ctx context.Context) (l level, err error) {
	state, err := s.caddy.Admin(ctx, "/llm_stream/state")
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(state, &l); err != nil {
		return l, err
	}
	metrics, err := s.caddy.Admin(ctx, "/metrics")
	if err != nil {
		return l, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(metrics)))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_memstats_heap_alloc_bytes":
			l.heap, _ = strconv.ParseFloat(value, 64)
		case "go_goroutines":
			l.goroutines, _ = strconv.ParseFloat(value, 64)
		}
	}
	return l, lines.Err()
}

// TestSoak is the run. SOAK is how long it takes.
func TestSoak(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: `make soak` runs it")
	}
	length, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(length+5*time.Minute, func() { panic("the soak does not come to its end") })
	defer overdue.Stop()
	s := &soak{T: t, backend: startBackend(t), counts: make(map[string]int)}
	s.caddy = rig.StartProcess(t, s.config("100ms"))
	s.addr = s.caddy.Addr
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var clients, others sync.WaitGroup
	s.clients(ctx, &clients)
	others.Go(func() { s.reloads(ctx) })
	others.Go(func() { s.pauses(ctx) })
	levels := s.watch(ctx)
	others.Wait()
	clients.Wait()
	s.checkIdle()
	s.checkFlat(levels)
	s.exit()
	s.report(length, levels)
}

func (s *soak) config(beat string) string {
	return strings.NewReplacer("BACKEND", s.backend.addr, "BEAT", beat).Replace(caddyfile)
}

// clients lets clients come until the time is over.
func (s *soak) clients(ctx context.Context, wg *sync.WaitGroup) {
	var calls atomic.Int64
	for i := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // not for secrets
			for ctx.Err() == nil {
				k := &talk{soak: s, ctx: context.WithoutCancel(ctx), rng: rng, name: fmt.Sprint("call-", calls.Add(1))}
				if err := k.run(); err != nil {
					s.breaks(err)
				}
				s.count("talks")
			}
		})
	}
}

// reloads replaces the configuration again and again.
func (s *soak) reloads(ctx context.Context) {
	for i := 0; pass(ctx, 2*time.Second); i++ {
		s.caddy.Reload(s.config(fmt.Sprintf("%dms", 100+i%2)))
		s.count("reloads")
	}
}

// pauses stops the backend for a moment again and again.
func (s *soak) pauses(ctx context.Context) {
	for pass(ctx, 3*time.Second) {
		s.backend.pause(500 * time.Millisecond)
		s.count("backend stopped")
	}
}

// pass waits, and reports whether the time is not over.
func pass(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// watch looks at the process until the time is over.
func (s *soak) watch(ctx context.Context) (levels []level) {
	for pass(ctx, 100*time.Millisecond) {
		l, err := s.level(ctx)
		if err != nil {
			continue // in the middle of a reload, or the end
		}
		if l.Streams > maxStreams {
			s.breaks(fmt.Errorf("%d streams run, %d may", l.Streams, maxStreams))
		}
		levels = append(levels, l)
	}
	return levels
}

// checkIdle checks that nothing is left when all clients have gone.
func (s *soak) checkIdle() {
	s.client.CloseIdleConnections()
	var l level
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var err error
		if l, err = s.level(s.Context()); err == nil && l.Streams+l.Clients+l.Running+l.Kept+l.Queued == 0 {
			if l.goroutines > idleGoroutines {
				continue
			}
			s.Logf("when all have gone: %.0f goroutines, %.1f MB of heap", l.goroutines, l.heap/1e6)
			return
		}
	}
	s.breaks(fmt.Errorf("when all have gone there are still %+v", l))
}

// checkFlat checks that the process has not grown.
func (s *soak) checkFlat(levels []level) {
	if len(levels) < 40 {
		return
	}
	quarter := len(levels) / 4
	least := func(part []level, of func(level) float64) float64 {
		return of(slices.MinFunc(part, func(a, b level) int { return int(of(a) - of(b)) }))
	}
	most := func(part []level, of func(level) float64) float64 {
		return of(slices.MaxFunc(part, func(a, b level) int { return int(of(a) - of(b)) }))
	}
	heap := func(l level) float64 { return l.heap }
	goroutines := func(l level) float64 { return l.goroutines }
	first, last := levels[quarter:2*quarter], levels[3*quarter:]
	if a, b := least(first, heap), least(last, heap); b > 1.5*a+16e6 {
		s.breaks(fmt.Errorf("the heap has grown from %.1f MB to %.1f MB", a/1e6, b/1e6))
	}
	if a, b := most(first, goroutines), most(last, goroutines); b > 1.5*a+50 {
		s.breaks(fmt.Errorf("the goroutines have grown from %.0f to %.0f", a, b))
	}
}

// exit ends the process with streams open.
func (s *soak) exit() {
	ctx, cancel := context.WithCancel(s.Context())
	var wg sync.WaitGroup
	s.clients(ctx, &wg)
	time.Sleep(time.Second)
	s.exiting.Store(true)
	since := s.caddy.Signal(syscall.SIGTERM)
	cancel()
	code, at, err := s.caddy.Exited(deadline + 10*time.Second)
	wg.Wait()
	switch {
	case err != nil:
		s.breaks(err)
	case code != 0:
		s.breaks(fmt.Errorf("exit code %d", code))
	default:
		s.Logf("exit after %v, with a deadline of %v", at.Sub(since).Round(time.Millisecond), deadline)
	}
}

// report writes what has been.
func (s *soak) report(length time.Duration, levels []level) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%v of soaking\n", length)
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, "%8d  %s\n", s.counts[what], what)
	}
	for i, part := range slices.Collect(slices.Chunk(levels, max(1, (len(levels)+3)/4))) {
		var heap, goroutines, streams, kept float64
		for _, l := range part {
			heap, goroutines = max(heap, l.heap), max(goroutines, l.goroutines)
			streams, kept = max(streams, float64(l.Streams)), max(kept, float64(l.Kept))
		}
		fmt.Fprintf(&b, "quarter %d: at most %.1f MB of heap, %.0f goroutines, %.0f streams, %.0f kept\n", i+1, heap/1e6, goroutines, streams, kept)
	}
	fmt.Fprintf(&b, "%8d  broken invariants\n", len(s.broken))
	s.Log(b.String())
}
