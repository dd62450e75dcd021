// Package stage is what the tests of the JavaScript client play on: a Caddy in
// a process of its own before a simulated backend, and a network before it. A
// script has no hold of processes and connections, so that it asks the stage
// over HTTP to cut, reload or kill.
//
// The invariant: it counts for each case how often the backend was asked,
// whatever becomes of Caddy meanwhile.
package stage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// The headers with which a script tells the backend what case it plays, and how
// often that is to be refused, and with what status, before it answers.
const (
	headerCase   = "X-Case"
	headerRefuse = "X-Refuse" // count
	headerStatus = "X-Refuse-Status"
)

// Stage is a Caddy, its backend, and the network before it.
type Stage struct {
	// Addr is where clients find Caddy: the network's, not Caddy's own.
	Addr string
	// URL is the base URL of the stage's own requests:
	//
	//	POST /cut /freeze /reload /kill /start
	//	GET  /calls?case=… /cancelled?case=… /text?n=… /reasoning?n=…
	URL string

	tb        testing.TB
	caddyfile string
	network   *Network
	sim       llmsim.Backend

	mu        sync.Mutex
	process   *rig.Process
	reloads   int
	calls     map[string]int
	cancelled map[string]int
}

// New sets a stage up until the test ends. In the Caddyfile, ADDR is Caddy's
// address, BACKEND the backend's, STAGE that of URL, and FILES this checkout.
func New(tb testing.TB, caddyfile string) *Stage {
	tb.Helper()
	files, err := filepath.Abs("../..")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Stage{tb: tb, calls: make(map[string]int), cancelled: make(map[string]int)}
	s.sim.Options = llmsim.Options{Tokens: 60, Interval: 10 * time.Millisecond, TTFT: 20 * time.Millisecond}
	control := httptest.NewUnstartedServer(http.HandlerFunc(s.control))
	tb.Cleanup(control.Close)
	s.URL = "http://" + control.Listener.Addr().String()
	s.caddyfile = strings.NewReplacer("BACKEND", rig.NewBackend(tb, s.answer).Addr,
		"STAGE", strings.TrimPrefix(s.URL, "http://"), "FILES", files).Replace(caddyfile)
	s.process = rig.StartProcess(tb, s.caddyfile)
	s.network = NewNetwork(tb, s.process.Addr)
	s.Addr = s.network.Addr
	control.Start() // what it uses is there now
	return s
}

// answer is the backend: it counts, refuses what it is asked to, and generates.
func (s *Stage) answer(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(headerCase)
	s.mu.Lock()
	if r.Method == http.MethodPost {
		s.calls[name]++
	}
	n := s.calls[name]
	s.mu.Unlock()
	if refuse, err := strconv.Atoi(r.Header.Get(headerRefuse)); err == nil && n <= refuse {
		status, err := strconv.Atoi(r.Header.Get(headerStatus))
		if err != nil {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"not now","code":"overloaded"}}`, status)
		return
	}
	if name == "json" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"object":"something.else"}`))
		return
	}
	s.sim.ServeHTTP(w, r)
	if r.Context().Err() != nil {
		s.mu.Lock()
		s.cancelled[name]++
		s.mu.Unlock()
	}
}

// control carries out what a script asks for.
func (s *Stage) control(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	query := r.URL.Query()
	n, _ := strconv.Atoi(query.Get("n")) // 0 where there is none
	name := query.Get("case")
	var answer any
	switch r.URL.Path {
	case "/cut":
		answer = s.network.Cut()
	case "/freeze":
		s.network.Freeze()
	case "/reload":
		s.reload()
	case "/kill":
		s.kill()
	case "/start":
		s.start()
	case "/calls":
		answer = s.count(s.calls, name)
	case "/cancelled":
		answer = s.count(s.cancelled, name)
	case "/text":
		answer = llmsim.Text(n)
	case "/reasoning":
		answer = llmsim.ReasoningText(n)
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Stage) count(counts map[string]int, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counts[name]
}

func (s *Stage) current() *rig.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// reload gives Caddy another configuration: the same would be no reload.
func (s *Stage) reload() {
	s.mu.Lock()
	s.reloads++
	site := fmt.Sprintf("ADDR {\n\tvars reload %d\n", s.reloads)
	s.mu.Unlock()
	s.current().Reload(strings.Replace(s.caddyfile, "ADDR {\n", site, 1))
}

// kill ends Caddy as a machine does that loses power.
func (s *Stage) kill() {
	p := s.current()
	p.Signal(syscall.SIGKILL)
	if _, _, err := p.Exited(10 * time.Second); err != nil {
		s.tb.Error(err)
	}
}

// start starts another Caddy in the place of one that was killed.
func (s *Stage) start() {
	p := rig.StartProcess(s.tb, s.caddyfile)
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	s.network.Lead(p.Addr)
}

// Env is the environment of a script that plays on this stage.
func (s *Stage) Env() []string {
	return append(os.Environ(), "LLMSTREAM_URL=http://"+s.Addr, "LLMSTREAM_STAGE="+s.URL)
}
