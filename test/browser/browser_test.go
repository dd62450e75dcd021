// Package browser_test runs in Chromium what people look at: the JavaScript
// client, the playground, and the examples.
package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
	"github.com/caddy-llmstream/caddy-llmstream/test/internal/stage"
)

// run runs a script with Chromium before a Caddy.
func run(t *testing.T, caddyfile, script string) {
	t.Helper()
	node, chromium := tools.Node(t), tools.Chromium(t)
	tools.Packages(t, ".")
	s := stage.New(t, caddyfile)
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", script)
	cmd.Env = append(s.Env(), "LLMSTREAM_CHROMIUM="+chromium)
	tools.RunTAP(t, cmd)
}

// The scenarios of the client, as in Node.js.
func TestClient(t *testing.T) {
	run(t, stage.Caddyfile, "client.test.mjs")
}

// The page of llm_stream_playground, with the site of Caddyfile.example, and
// once more without an endpoint that reloads.
func TestPlayground(t *testing.T) {
	site := siteOf(t, "../../Caddyfile.example", 300, "127.0.0.1:8081", "BACKEND", "localhost:2019", "ADMIN",
		"request_header @page X-Sim-Tokens 400", "handle_path /bare/* {\n\t\tllm_stream_playground\n\t}")
	site, _, found := strings.Cut(site, "\n:8081 {")
	if !found {
		t.Fatal("the example has no site :8081")
	}
	run(t, site, "playground.test.mjs")
}

// The example with useChat, as vite builds it and with its own Caddyfile.
func TestUseChat(t *testing.T) {
	node := tools.Node(t)
	const example = "../../examples/usechat"
	tools.Packages(t, example)
	out := t.TempDir()
	build := exec.CommandContext(t.Context(), node, "node_modules/vite/bin/vite.js", "build", "--outDir", out)
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run(t, siteOf(t, example+"/Caddyfile", 300, "root dist", "root "+out), "usechat.test.mjs")
}

// The pages without a build.
func TestExamples(t *testing.T) {
	run(t, siteOf(t, "../../examples/web/Caddyfile", 200, "root * .", "root FILES/examples/web"), "examples.test.mjs")
}

// siteOf returns the Caddyfile of an example as one for a stage, with answers
// of so many tokens, and something else replaced.
func siteOf(t *testing.T, path string, tokens int, replace ...string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, site, found := strings.Cut(string(content), "\n:8080 {")
	if !found {
		t.Fatalf("%s has no site :8080", path)
	}
	site = strings.NewReplacer(append(replace, "127.0.0.1:8000", "BACKEND")...).Replace(site)
	return fmt.Sprintf("ADDR {\n\trequest_header X-Sim-Tokens %d%s", tokens, site)
}
