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

// site is a Caddyfile with llm_stream, with options, before the Ollama of all
// tests.
func site(options string) string { return ollama.site(options) }

// site is a Caddyfile with llm_stream, with options, before this Ollama.
func (s *server) site(options string) string {
	return "ADDR {\nllm_stream {\n" + options + "\n}\nreverse_proxy " + s.addr +
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

// reply is what a request has come to.
type reply struct {
	resp *http.Response
	err  error
}

// askAside asks a question while the test does something else.
func askAside(ctx context.Context, t *testing.T, c *rig.Caddy, e endpoint, q question) <-chan reply {
	t.Helper()
	return postAside(ctx, t, "http://"+c.Addr+e.path, e.body(q, true))
}

// postAside sends a request while the test does something else.
func postAside(ctx context.Context, t *testing.T, url, body string) <-chan reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	replies := make(chan reply, 1)
	go func() {
		resp, err := client.Do(req)
		replies <- reply{resp, err}
	}()
	return replies
}

// warm lets the Ollama of all tests load a model.
func warm(t *testing.T, model string) (runner int) {
	t.Helper()
	return ollama.warm(t, model)
}

// warm lets Ollama load a model, and returns the process that runs it.
func (s *server) warm(t *testing.T, model string) (runner int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := endpoints[0]
	if _, err := s.post(ctx, e.path, []byte(e.body(question{model: model, limit: 1}, false))); err != nil {
		t.Fatal(err)
	}
	runner, err := s.runner(model)
	if err != nil {
		t.Fatal(err)
	}
	return runner
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
