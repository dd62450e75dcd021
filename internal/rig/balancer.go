package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// StartBalancer runs HAProxy as a TCP balancer over nodes until the test ends,
// and returns its address. A node that refuses a connection is left out for
// the time being, and the next is tried.
func StartBalancer(tb testing.TB, nodes ...string) string {
	tb.Helper()
	binary := tools.HAProxy(tb)
	addr := FreeAddr(tb)
	var servers strings.Builder
	for i, node := range nodes {
		_, _ = fmt.Fprintf(&servers, "\tserver node%d %s check inter 100ms rise 1 fall 1 on-error mark-down observe layer4\n", i, node)
	}
	path := filepath.Join(tb.TempDir(), "haproxy.cfg")
	config := fmt.Sprintf("global\n\tmaxconn 2000\ndefaults\n\tmode tcp\n\ttimeout connect 1s\n\ttimeout client 1m\n\ttimeout server 1m\n"+
		"\tretries 3\n\toption redispatch 1\nlisten caddies\n\tbind %s\n\tbalance roundrobin\n%s", addr, &servers)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(context.Background(), binary, "-db", "-f", path) //nolint:gosec // found in PATH
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
			return addr
		}
		if time.Now().After(deadline) {
			tb.Fatalf("HAProxy does not start: %v", err)
		}
	}
}
