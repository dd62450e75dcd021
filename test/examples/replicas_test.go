package examples_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// Both replicas are replaced while people stream, and every one of them has a whole
// answer.
func TestTwoReplicas(t *testing.T) {
	tools.Node(t)
	tools.Redis(t)
	caddy := filepath.Join(t.TempDir(), "caddy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", caddy, "../../cmd/caddy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "./run.sh", "./deploy.sh")
	cmd.Dir = "../../examples/two-replicas"
	cmd.Env = append(os.Environ(), "CADDY="+caddy, "PORT="+strconv.Itoa(freePorts(t, 7)), "PEOPLE=40")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "40 people: 40 whole answers") {
		t.Errorf("%v\n%s", err, out)
	}
}

// freePorts returns the first of n ports in a row that nobody listens on.
func freePorts(t *testing.T, n int) int {
	t.Helper()
search:
	for range 100 {
		_, port, err := net.SplitHostPort(rig.FreeAddr(t))
		if err != nil {
			t.Fatal(err)
		}
		first, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i)))
			if err != nil {
				continue search
			}
			_ = listener.Close()
		}
		return first
	}
	t.Fatal("no ports in a row are free")
	return 0
}
