package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Process is a Caddy of ./cmd/caddy in a process of its own, for what cannot
// be tried inside a test: its end.
type Process struct {
	tb testing.TB
	// Addr is where its first site listens, host and port.
	Addr string
	// TLSAddr is an address for a site with TLS.
	TLSAddr string

	binary string
	admin  string
	dir    string
	cmd    *exec.Cmd
	logs   *logBuffer
	exited chan struct{} // closed when it has
	at     time.Time     // when it has
}

// buildTime is how long the build of a Caddy may take.
const buildTime = 5 * time.Minute

// built is the path of a Caddy of this checkout, which go build makes anew only
// where something has changed.
var built = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	path := filepath.Join(root, "bin", "caddy-rig")
	if Race {
		path += "-race"
	}
	build := exec.CommandContext(ctx, "go", "build", fmt.Sprintf("-race=%t", Race), "-o", path, "./cmd/caddy") //nolint:gosec // our own
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// StartProcess runs a Caddy with a Caddyfile. It is killed at the end of the
// test where it still runs. In the Caddyfile, ADDR and TLSADDR stand for free
// addresses of this machine, and ADMIN for that of its admin API.
func StartProcess(tb testing.TB, caddyfile string) *Process {
	tb.Helper()
	binary, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{
		tb: tb, Addr: FreeAddr(tb), TLSAddr: FreeAddr(tb),
		binary: binary, admin: FreeAddr(tb), dir: tb.TempDir(),
		logs: new(logBuffer), exited: make(chan struct{}),
	}
	path := filepath.Join(p.dir, "Caddyfile")
	if err := os.WriteFile(path, []byte(withCertificate(tb, p.dir, p.complete(caddyfile))), 0o600); err != nil {
		tb.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.Background(), binary, "run", "--adapter", "caddyfile", "--config", path) //nolint:gosec // our own
	p.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "GORACE=exitcode=66 atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state says it all
		p.at = time.Now()
		close(p.exited)
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if tb.Failed() {
			tb.Logf("Caddy at %s has logged\n%s", p.Addr, p.logs)
		}
	})
	p.awaitStart()
	return p
}

// complete makes a Caddyfile for this process.
func (p *Process) complete(caddyfile string) string {
	_, port, _ := net.SplitHostPort(p.TLSAddr)
	global := fmt.Sprintf("{\n\tadmin %s\n\tskip_install_trust\n\tauto_https disable_redirects\n\thttps_port %s\n\tpersist_config off\n", p.admin, port)
	caddyfile = strings.NewReplacer("TLSADDR", p.TLSAddr, "ADDR", "http://"+p.Addr, "ADMIN", p.admin).Replace(caddyfile)
	if rest, ok := strings.CutPrefix(strings.TrimSpace(caddyfile), "{\n"); ok {
		return global + rest
	}
	return global + "}\n" + caddyfile
}

// awaitStart waits until the configuration runs.
func (p *Process) awaitStart() {
	p.tb.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.logs.String(), "serving initial configuration"); {
		select {
		case <-p.exited:
			p.tb.Fatal("Caddy does not start")
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.tb.Fatal("Caddy takes too long to start")
		}
	}
}

// Reload replaces the configuration.
func (p *Process) Reload(caddyfile string) {
	p.tb.Helper()
	req, err := http.NewRequestWithContext(p.tb.Context(), http.MethodPost, "http://"+p.admin+"/load",
		strings.NewReader(p.complete(caddyfile)))
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/caddyfile")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		p.tb.Fatalf("reload: %s %s", resp.Status, &body)
	}
}

// Command returns a command of the same binary that is told the address of the
// admin API.
func (p *Process) Command(args ...string) *exec.Cmd {
	return exec.CommandContext(p.tb.Context(), p.binary, append(args, "--address", p.admin)...) //nolint:gosec // our own
}

// Admin asks the admin API of the process, and returns the body of its answer.
func (p *Process) Admin(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return body, err
}

// Signal sends the process a signal and returns when.
func (p *Process) Signal(sig os.Signal) time.Time {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatal(err)
	}
	return time.Now()
}

// Stop runs `caddy stop`, without waiting for its end, and returns when.
func (p *Process) Stop() time.Time {
	p.tb.Helper()
	stop := exec.CommandContext(p.tb.Context(), p.binary, "stop", "--address", p.admin) //nolint:gosec // our own
	if err := stop.Start(); err != nil {
		p.tb.Fatal(err)
	}
	go func() { _ = stop.Wait() }() // ends with the process that it stops
	return time.Now()
}

// AwaitLog waits until the process has logged a text.
func (p *Process) AwaitLog(text string) {
	p.tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.logs.String(), text); {
		if time.Now().After(deadline) {
			p.tb.Fatalf("Caddy does not log %q", text)
		}
		time.Sleep(time.Millisecond)
	}
}

// Logs returns what the process has logged.
func (p *Process) Logs() string { return p.logs.String() }

// ErrRunning is the error for a process that should have ended.
var ErrRunning = errors.New("rig: the process still runs")

// Exited waits for the end of the process, and returns its exit code and when
// it was. The error is ErrRunning where it does not end within limit.
func (p *Process) Exited(limit time.Duration) (code int, at time.Time, err error) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), p.at, nil
	case <-time.After(limit):
		return 0, time.Time{}, fmt.Errorf("%w after %v: %s", ErrRunning, limit, p.stacks())
	}
}

// stacks returns what the goroutines of the process do.
func (p *Process) stacks() string {
	req, err := http.NewRequestWithContext(p.tb.Context(), http.MethodGet, "http://"+p.admin+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	_, _ = text.ReadFrom(resp.Body)
	return text.String()
}
