// Package examples_test runs the examples that are programs before a real
// Caddy, through cuts and a reload. Those that are pages are tested in
// test/browser.
package examples_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
	"github.com/caddy-llmstream/caddy-llmstream/test/internal/stage"
)

const (
	site = `ADDR {
	request_header X-Sim-Tokens 200
	llm_stream /v1/* {
		resume /llm
		drain {
			spread 200ms
			retry  300ms
		}
	}
	reverse_proxy BACKEND
}
`
	tokens = 200
)

// output is what a program has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await waits until the program has printed more than n bytes.
func (o *output) await(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(o.String()) <= n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it has printed %q", o)
		}
	}
}

// ask asks the stage for something.
func ask(t *testing.T, s *stage.Stage, path string) (n int) {
	t.Helper()
	resp, err := http.Post(s.URL+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&n)
	return n
}

// try runs a program that is told the base URL and a question, and fails the
// network under it.
func try(t *testing.T, program ...string) {
	t.Helper()
	s := stage.New(t, site)
	var stdout output
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], "http://"+s.Addr, "hi")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.await(t, 20)
	ask(t, s, "/cut")
	stdout.await(t, len(stdout.String()))
	ask(t, s, "/reload")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	if got := stdout.String(); got != llmsim.Text(tokens) {
		t.Errorf("it has printed %q\n%s", got, &stderr)
	}
	if !strings.Contains(stderr.String(), "[stop]") {
		t.Errorf("it has not said how it ended: %s", &stderr)
	}
	if calls := ask(t, s, "/calls?case="); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestGo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "ask")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	try(t, binary)
}

func TestPython(t *testing.T) {
	try(t, tools.Python(t), "../../examples/python/chat.py")
}
