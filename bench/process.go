//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// startTime is how long a process may take to listen, and stopTime to exit.
	startTime = 15 * time.Second
	stopTime  = 10 * time.Second
	// clockTick is the unit of CPU time in /proc, on every architecture of Go's.
	clockTick = 10 * time.Millisecond
)

// process is a proxy or the backend. The methods that look at it do nothing for
// a nil one: then clients ask the backend itself.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	exited chan struct{} // closed when it is gone, with how in err
	err    error
	addr   netip.AddrPort
	admin  netip.AddrPort // Caddy's admin endpoint, where there is one

	profileTo string // where its heap profile goes, without an ending, or empty
}

// freePort returns an address of this machine that nothing listens on.
func freePort() (netip.AddrPort, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer ln.Close()
	return netip.ParseAddrPort(ln.Addr().String())
}

// start runs a command that exits on SIGTERM. When we are killed it gets the
// signal orphaned. The kernel takes the thread that started it for us: main holds
// its own.
func start(cmd *exec.Cmd, orphaned syscall.Signal) (*process, error) {
	p := &process{cmd: cmd, stderr: new(bytes.Buffer), exited: make(chan struct{})}
	cmd.Stderr = p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: orphaned}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // close waits for it
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// startBackend runs this program as the backend of a load.
func startBackend(c clock, l *load) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "backend", "-listen", addr.String(),
		"-begin", strconv.FormatInt(c.begin.UnixNano(), 10),
		"-interval", l.interval().String(), "-pad", strconv.Itoa(l.pad))
	p, err := start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	p.addr = addr
	return p, p.waitReady()
}

// startCaddy runs a Caddy before the backend. directives are what its site has
// before reverse_proxy.
func startCaddy(binary, dir, directives string, backend netip.AddrPort) (*process, error) {
	addr, err1 := freePort()
	admin, err2 := freePort()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https off
}
http://%s {
	%s
	reverse_proxy %s
}
`, admin, addr, directives, backend)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p, err := start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	p.addr, p.admin = addr, admin
	return p, p.waitReady()
}

// startNginx runs an nginx before the backend, buffering off.
func startNginx(dir string, backend netip.AddrPort) (*process, error) {
	binary, err := nginxPath()
	if err != nil {
		return nil, err
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`
daemon off;
worker_processes auto;
worker_rlimit_nofile 20000;
pid %[1]s/nginx.pid;
events { worker_connections 20000; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s backlog=4096;
		location / {
			proxy_pass http://%[3]s;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
		}
	}
}
`, dir, addr, backend)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	// Killed, it would leave its workers behind.
	p, err := start(exec.Command(binary, "-p", dir, "-c", file, "-e", "stderr"), syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	p.addr = addr
	return p, p.waitReady()
}

// nginxPath returns where nginx is. Debian has it where only root's PATH leads.
func nginxPath() (string, error) {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/nginx")
}

// waitReady returns when the process accepts connections, or ends it.
func (p *process) waitReady() error {
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); {
		select {
		case <-p.exited:
			return fmt.Errorf("%s exited: %w\n%s", p.cmd.Path, p.err, tail(p.stderr))
		case <-time.After(20 * time.Millisecond):
		}
		conn, err := net.DialTimeout("tcp", p.addr.String(), time.Second)
		if err == nil {
			return conn.Close()
		}
	}
	p.close()
	return fmt.Errorf("%s did not listen within %v\n%s", p.cmd.Path, startTime, tail(p.stderr))
}

// tail returns the end of what a process that has exited printed.
func tail(b *bytes.Buffer) []byte { return b.Bytes()[max(0, b.Len()-2000):] }

// close ends the process and returns when it is gone.
func (p *process) close() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-p.exited:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// pids returns the process and its children.
func (p *process) pids() []string {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	// A kernel without the file has no children to tell of: Caddy has none, and
	// of nginx the rows are then missing, not wrong.
	children, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	return append([]string{pid}, strings.Fields(string(children))...)
}

// memory returns the resident set in bytes, that of children included.
func (p *process) memory() (total int64, err error) {
	if p == nil {
		return 0, nil
	}
	for _, pid := range p.pids() {
		statm, err := os.ReadFile(filepath.Join("/proc", pid, "statm"))
		if err != nil {
			return 0, err
		}
		pages, err := field(statm, 1)
		if err != nil {
			return 0, err
		}
		total += pages * int64(os.Getpagesize())
	}
	return total, nil
}

// cpu returns the CPU time used so far, in user and kernel, children included.
func (p *process) cpu() (total time.Duration, err error) {
	if p == nil {
		return 0, nil
	}
	for _, pid := range p.pids() {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil {
			return 0, err
		}
		// The second field is the name in parentheses, which may have blanks.
		stat = stat[bytes.LastIndexByte(stat, ')')+1:]
		user, err1 := field(stat, 11)
		system, err2 := field(stat, 12)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		total += time.Duration(user+system) * clockTick
	}
	return total, nil
}

// field returns number i, from 0, of what blanks separate.
func field(b []byte, i int) (int64, error) {
	fields := bytes.Fields(b)
	if i >= len(fields) {
		return 0, fmt.Errorf("no field %d in %q", i, b)
	}
	return strconv.ParseInt(string(fields[i]), 10, 64)
}

// profile writes the heap profile of a Caddy, if that is asked for.
func (p *process) profile() error {
	if p == nil || p.profileTo == "" || !p.admin.IsValid() {
		return nil
	}
	// The text has the runtime's own figures at its end, the other the names.
	names, err := p.ask("/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	figures, err := p.ask("/debug/pprof/heap?debug=1")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(p.profileTo+".heap", names, 0o600),
		os.WriteFile(p.profileTo+".txt", figures, 0o600))
}

// ask returns what Caddy's admin endpoint answers.
func (p *process) ask(path string) ([]byte, error) {
	client := http.Client{Timeout: startTime}
	resp, err := client.Get("http://" + p.admin.String() + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// live returns what a Caddy's heap and stacks hold after a collection, in bytes.
func (p *process) live() (total int64, err error) {
	const path = "/debug/pprof/heap?gc=1&debug=1"
	if _, err := p.ask(path); err != nil { // what pools hold survives one collection
		return 0, err
	}
	profile, err := p.ask(path)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"# HeapAlloc = ", "# Stack = "} {
		_, after, _ := bytes.Cut(profile, []byte(name))
		n, err := field(after, 0)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// slowClients returns how many clients our handler took for slow so far.
func (p *process) slowClients() (int, error) {
	metrics, err := p.ask("/metrics")
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "caddy_llm_stream_slow_clients_total{") {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return int(total), nil
}
