package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// startNginx runs nginx with a location until the test ends, and returns its
// address.
func startNginx(t *testing.T, location string) string {
	t.Helper()
	dir, addr := t.TempDir(), rig.FreeAddr(t)
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off;\nmaster_process off;\npid %[1]s/pid;\nerror_log %[1]s/error.log;\nevents {}\nhttp {\naccess_log off;\n"+
		"client_body_temp_path %[1]s/body;\nproxy_temp_path %[1]s/proxy;\nfastcgi_temp_path %[1]s/f;\nuwsgi_temp_path %[1]s/u;\nscgi_temp_path %[1]s/s;\n"+
		"gzip on;\nserver {\nlisten %[2]s;\n%[3]s\n}\n}\n", dir, addr, location)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tools.Nginx(t), "-p", dir, "-c", config) //nolint:gosec // found in PATH
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "nginx starts", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

// Behind nginx as docs/recipes.md has it, with its buffering and compression on by
// default, each token comes before the next is said, and heartbeats do.
func TestBehindNginx(t *testing.T) {
	recipes, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	location := regexp.MustCompile("(?s)```nginx\n(location.*?)```").FindSubmatch(recipes)
	if location == nil {
		t.Fatal("docs/recipes.md has no location for nginx")
	}
	next := make(chan struct{})
	c, _ := serve(t, "heartbeat 50ms", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for i := range 20 {
			rig.Say(w, rig.Chunk(fmt.Sprint(i)))
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		rig.Say(w, rig.Stop)
	})
	addr := startNginx(t, strings.Replace(string(location[1]), "127.0.0.1:8080", c.Addr, 1))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+chatPath, strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	client := http.Client{Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	equal(t, "coding", resp.Header.Get("Content-Encoding"), "")
	fr := rig.NewFrameReader(resp.Body)
	for i := range 20 {
		equal(t, "delta", frames(t, fr, 1)[0].Data, fmt.Sprintf(`{"text":"%d"}`, i))
		if i == 10 {
			time.Sleep(120 * time.Millisecond) // so that a heartbeat is due
		}
		next <- struct{}{}
	}
	equal(t, "end", lastData(frames(t, fr, -1)), `{"finish_reason":"stop"}`)
	if fr.Comments == 0 {
		t.Error("no heartbeat has come through")
	}
}
