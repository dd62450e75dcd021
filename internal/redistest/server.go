// Package redistest runs real Redis servers for tests, and proxies that come
// between.
//
// The invariant: what it starts ends with the test, and nothing outside the test's
// own folder and loopback ports is touched.
package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// readyTime bounds the start of a server.
const readyTime = 10 * time.Second

// Server is a redis-server in a process of its own, without persistence unless
// its arguments say otherwise.
type Server struct {
	// Addr is where it listens, host and port. It is the same after a Restart.
	Addr string

	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd

	mu     sync.Mutex
	client rueidis.Client
}

// Start starts a server with arguments such as "--maxmemory", "4mb". It skips the
// test where there is no redis-server.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	tools.Redis(tb)
	s := &Server{tb: tb, Addr: FreeAddr(tb), dir: tb.TempDir(), args: args}
	s.Restart()
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.client != nil {
			s.client.Close()
		}
		s.kill()
	})
	return s
}

// URL returns the server's address for a configuration.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Restart starts the server again after Stop, and waits until it answers.
func (s *Server) Restart() {
	s.tb.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{
		"--bind", host, "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no",
		"--logfile", filepath.Join(s.dir, "redis.log"),
	}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			_, _ = conn.Write([]byte("PING\r\n"))
			answer := make([]byte, 5)
			_, err = conn.Read(answer)
			_ = conn.Close()
			if err == nil && string(answer) == "+PONG" {
				return
			}
		}
		select {
		case <-ctx.Done():
			s.tb.Fatalf("redis-server does not answer: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the server as an operator would.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Do asks the server something and returns its answer as text. A list becomes
// its entries, one a line.
func (s *Server) Do(args ...string) string {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr}, DisableCache: true, ForceSingleClient: true,
			PipelineMultiplex: -1, ClientName: "redistest",
		})
		if err != nil {
			s.tb.Fatal(err)
		}
		s.client = client
	}
	answer, err := s.client.Do(context.Background(), s.client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.tb.Fatalf("%q: %v", args, err)
	}
	return text(&answer)
}

func text(m *rueidis.RedisMessage) string {
	if list, err := m.ToArray(); err == nil {
		var all strings.Builder
		for i := range list {
			all.WriteString(text(&list[i]) + "\n")
		}
		return all.String()
	}
	if n, err := m.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	s, _ := m.ToString()
	return strings.TrimPrefix(s, "txt:") // how RESP3 begins a long text
}

// FreeAddr returns an address on which nothing listens. Its port is none that the
// system gives to outgoing connections, which may take it while a server restarts.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	const first, last, attempts = 12000, 32000, 100
	for range attempts {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first))) //nolint:gosec // a test
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	tb.Fatal("no free port")
	return ""
}

// Cluster starts a cluster of so many servers, each with a part of the slots and
// no replica, and returns them.
func Cluster(tb testing.TB, nodes int) []*Server {
	tb.Helper()
	servers := make([]*Server, nodes)
	const slots = 16384
	for i := range servers {
		bus := FreeAddr(tb)
		_, busPort, _ := net.SplitHostPort(bus)
		servers[i] = Start(tb, "--cluster-enabled", "yes", "--cluster-port", busPort)
		servers[i].Do("CLUSTER", "ADDSLOTSRANGE",
			strconv.Itoa(i*slots/nodes), strconv.Itoa((i+1)*slots/nodes-1))
		if i > 0 {
			host, port, _ := net.SplitHostPort(servers[0].Addr)
			servers[i].Do("CLUSTER", "MEET", host, port, servers[0].busPort())
		}
	}
	deadline := time.Now().Add(readyTime)
	for _, s := range servers {
		for !s.clusterReady(nodes) {
			if time.Now().After(deadline) {
				tb.Fatal("the cluster does not come up: " + s.Do("CLUSTER", "INFO"))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return servers
}

func (s *Server) busPort() string { return s.args[len(s.args)-1] }

func (s *Server) clusterReady(nodes int) bool {
	var state string
	var known int
	for _, line := range splitLines(s.Do("CLUSTER", "INFO")) {
		_, _ = fmt.Sscanf(line, "cluster_state:%s", &state)
		_, _ = fmt.Sscanf(line, "cluster_known_nodes:%d", &known)
	}
	return state == "ok" && known == nodes
}
