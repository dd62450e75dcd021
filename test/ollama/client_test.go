//go:build ollama

package ollama_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/caddy-llmstream/caddy-llmstream" // what is tested
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// patience is how long anything may take that has no limit of its own.
const patience = time.Minute

// client makes a new connection for each request: that of a Caddy that has been
// stopped must not be used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

// site is a Caddyfile with llm_stream, with options, before Ollama.
func site(options string) string {
	return "ADDR {\nllm_stream {\n" + options + "\n}\nreverse_proxy " + ollama.addr +
		" {\nheader_up Host {upstream_hostport}\n}\n}"
}

// serve runs Caddy with llm_stream before Ollama.
func serve(t *testing.T, options string) *rig.Caddy {
	t.Helper()
	return rig.Start(t, site(options))
}

// send sends a request, and closes the body of its response when the test ends.
func send(ctx context.Context, t *testing.T, method, url, body string, header ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host // which net/http does not take from the header
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// ask sends a question through a Caddy at an address.
func ask(t *testing.T, addr string, e endpoint, q question, header ...string) *http.Response {
	t.Helper()
	resp := send(t.Context(), t, http.MethodPost, "http://"+addr+e.path, e.body(q, true), header...)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s: %s", e.path, resp.Status, body)
	}
	return resp
}

// warm has a model loaded and a process that runs it, and returns the process.
func warm(t *testing.T, model string) (pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := endpoints[0]
	if _, err := ollama.post(ctx, e.path, []byte(e.body(question{model: model, limit: 1}, false))); err != nil {
		t.Fatal(err)
	}
	pid, err := ollama.runner(model)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// frame reads the next frame.
func frame(t *testing.T, fr *rig.FrameReader) rig.Frame {
	t.Helper()
	f, err := fr.Next()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}
