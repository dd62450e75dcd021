package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// backendEnv makes this binary the backend, in a process that can be stopped.
const backendEnv = "LLMSTREAM_SOAK_BACKEND"

func TestMain(m *testing.M) {
	if os.Getenv(backendEnv) != "" {
		if err := serveBackend(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// callHeader names the response that a call is made for.
const callHeader = "X-Call"

// serveBackend serves a simulated backend that counts the calls for each response,
// until its input ends.
func serveBackend() error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the process that has started this one
		os.Exit(0)
	}()
	var mu sync.Mutex
	calls := make(map[string]int)
	sim := new(llmsim.Backend)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, asks := strings.CutPrefix(r.URL.Path, "/calls/"); asks {
			mu.Lock()
			n := calls[id]
			delete(calls, id)
			mu.Unlock()
			_, _ = fmt.Fprint(w, n)
			return
		}
		mu.Lock()
		calls[r.Header.Get(callHeader)]++
		mu.Unlock()
		sim.ServeHTTP(w, r)
	})}
	return server.Serve(listener)
}

// backend is the process of the backend.
type backend struct {
	addr string
	cmd  *exec.Cmd
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0]) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), backendEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &backend{strings.TrimSpace(addr), cmd}
}

// pause stops the process for a time.
func (b *backend) pause(d time.Duration) {
	_ = b.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = b.cmd.Process.Signal(syscall.SIGCONT)
}

// calls returns how many calls were made for a response.
func (b *backend) calls(ctx context.Context, id string) (n int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.addr+"/calls/"+id, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = fmt.Fscan(resp.Body, &n)
	return n, err
}
