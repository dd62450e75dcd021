package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// storm is many clients during many reloads.
type storm struct {
	clients, reloads int
	every            time.Duration // from one reload to the next
	spread           time.Duration
	words            int
	interval         time.Duration // from one word to the next

	reloaded atomic.Int64 // when the last reload began, in ns
	mu       sync.Mutex
	moments  []time.Duration // of reconnect frames, after the reload
	failures []string
	refused  int // connections that were made in the moment of a reload
}

func newStorm() *storm {
	s := &storm{
		clients: 2000, reloads: 10, every: 700 * time.Millisecond, spread: 500 * time.Millisecond,
		words: 12, interval: 800 * time.Millisecond,
	}
	if rig.Race {
		s.clients /= 5
	}
	return s
}

func (s *storm) backend(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for i := range s.words {
		rig.Say(w, rig.Chunk(fmt.Sprintf("t%d ", i)))
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
	rig.Say(w, rig.Stop)
}

func (s *storm) config(backend *rig.Backend, n int) string {
	return fmt.Sprintf(`ADDR {
		header X-Config %d
		llm_stream /plain/* {
			drain {
				on_reload reconnect
			}
		}
		llm_stream /pass/* {
			emit passthrough
		}
		llm_stream /kept/* {
			resume /llm {
				keep 2s
				grace 20s
			}
			drain {
				spread %v
				retry 100ms
			}
		}
		reverse_proxy %s {
			transport http {
				keepalive off # an idle one of an old configuration stays for two minutes
			}
		}
	}`, n, s.spread, backend.Addr)
}

func (s *storm) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

// bound is a client whose response is bound to its connection.
func (s *storm) bound(t *testing.T, url string, want func(body string) bool) {
	t.Helper()
	resp, err := s.post(t, url, "")
	if err != nil {
		s.fail("%s: %v", url, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !want(string(body)) {
		s.fail("%s: %v after %d bytes", url, err, len(body))
	}
}

// post sends a request. net/http closes connections whose first request it has
// not seen when a server shuts down, at a reload as well, so one that fails is
// made again: no handler has seen the request.
func (s *storm) post(t *testing.T, url, last string) (*http.Response, error) {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+chatPath, strings.NewReader(`{"stream":true}`))
		if err != nil {
			return nil, err
		}
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := manyClients.Do(req)
		if err == nil || t.Context().Err() != nil {
			return resp, err
		}
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// returning is a client that comes back when it is told to.
func (s *storm) returning(t *testing.T, url string) {
	t.Helper()
	a, last := new(rig.Answer), ""
	for a.Done == nil {
		resp, err := s.post(t, url, last)
		if err != nil || resp.StatusCode != http.StatusOK {
			s.fail("%s: %v %+v", url, err, resp)
			return
		}
		retry, err := s.read(a, resp.Body, &last)
		_ = resp.Body.Close()
		if err != nil {
			s.fail("%s: %v after %d frames", url, err, len(a.Frames))
			return
		}
		time.Sleep(retry)
	}
	if a.Text != wantText(s.words) {
		s.fail("%s: %q", url, a.Text)
	}
}

// read reads one connection to its clean end, and returns after what time to
// come back.
func (s *storm) read(a *rig.Answer, body io.Reader, last *string) (retry time.Duration, err error) {
	fr := rig.NewFrameReader(body)
	for {
		f, err := fr.Next()
		if err != nil {
			return 0, err
		}
		*last = f.ID
		if f.Event == "reconnect" {
			s.mu.Lock()
			s.moments = append(s.moments, time.Duration(time.Now().UnixNano()-s.reloaded.Load()))
			s.mu.Unlock()
			ms, err := strconv.Atoi(f.Retry)
			if err != nil {
				return 0, err
			}
			_, err = fr.Next()
			if err == io.EOF { //nolint:errorlint // not one that is wrapped
				err = nil
			}
			return time.Duration(ms) * time.Millisecond, err
		}
		if err := a.Merge(f); err != nil {
			return 0, err
		}
		if a.Done != nil {
			return 0, nil
		}
	}
}

// histogram counts the moments in tenths of the spread; the last one takes all
// that came later.
func (s *storm) histogram() [11]int {
	var counts [11]int
	for _, moment := range s.moments {
		counts[min(int(moment*10/s.spread), 10)]++
	}
	return counts
}

// level is what a process uses.
type level struct {
	goroutines, files int
	heap              uint64
}

func measure(t *testing.T) level {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return level{runtime.NumGoroutine(), openFiles(t), mem.HeapAlloc}
}

// Reloads again and again, with thousands of streams of all kinds: no client loses
// or repeats anything, every response is one upstream call, and nothing is
// left behind.
func TestReloadStorm(t *testing.T) {
	s := newStorm()
	backend := rig.NewBackend(t, s.backend)
	c := rig.Start(t, s.config(backend, 0))
	url := "http://" + c.Addr
	s.bound(t, url+"/plain", func(string) bool { return true }) // everything has run once
	calls := backend.Calls.Load()
	before := measure(t)

	const arrival = 2 * time.Second
	var clients sync.WaitGroup
	for i := range s.clients {
		clients.Go(func() {
			time.Sleep(time.Duration(i) * arrival / time.Duration(s.clients))
			switch i % 4 {
			case 0:
				s.bound(t, url+"/plain", func(body string) bool {
					return strings.Count(body, "\n\n") == s.words+1 && strings.Contains(body, "event: done\n")
				})
			case 1:
				s.bound(t, url+"/pass", func(body string) bool {
					return strings.Count(body, "\n\n") == s.words+2 && strings.HasSuffix(body, rig.Stop)
				})
			default:
				s.returning(t, url+"/kept")
			}
		})
	}
	time.Sleep(arrival)
	for i := range s.reloads {
		next := time.Now().Add(s.every)
		s.reloaded.Store(time.Now().UnixNano())
		c.Load(s.config(backend, i+1))
		time.Sleep(time.Until(next))
	}
	clients.Wait()

	for i, failure := range s.failures {
		if t.Errorf("%s", failure); i > 20 {
			break
		}
	}
	equal(t, "upstream calls", backend.Calls.Load()-calls, int64(s.clients))
	counts := s.histogram()
	t.Logf("%d clients, %d reloads, %d reconnect frames, %d connections closed before their request; "+
		"frames by tenths of the spread, and later: %v", s.clients, s.reloads, len(s.moments), s.refused, counts)
	for i, n := range counts[:10] { // how evenly is tested with package drain, where no client is late
		if n < len(s.moments)/40 && !rig.Race {
			t.Errorf("tenth %d of the spread has %d of %d", i, n, len(s.moments))
		}
	}
	const runtimeKeeps = 20 << 20 // of goroutines that have ended, for the next ones
	var after level
	defer func() { t.Logf("before %+v, after %+v", before, after) }()
	eventually(t, "nothing is left", func() bool {
		time.Sleep(100 * time.Millisecond)
		after = measure(t)
		after.heap -= uint64(len(c.Logs()))
		return after.goroutines <= before.goroutines+10 && after.files <= before.files+5 && after.heap <= before.heap+runtimeKeeps
	})
}

// openFiles counts the open file descriptors, where the system tells.
func openFiles(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
