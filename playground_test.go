package llmstream_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// The page is there where it was asked for and nowhere else, with what it
// loads, and everything else goes on to the next handler.
func TestPlaygroundServes(t *testing.T) {
	c := rig.Start(t, `
ADDR {
	llm_stream_playground
	respond "next"
}
`)
	get := func(method, path string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.Addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	for path, contentType := range map[string]string{
		"/":                       "text/html; charset=utf-8",
		"/playground/app.js":      "text/javascript; charset=utf-8",
		"/playground/client.js":   "text/javascript; charset=utf-8",
		"/playground/style.css":   "text/css; charset=utf-8",
		"/playground/icon.svg":    "image/svg+xml",
		"/playground/config.json": "application/json",
	} {
		resp, body := get(http.MethodGet, path)
		equal(t, path, resp.StatusCode, http.StatusOK)
		equal(t, path, resp.Header.Get("Content-Type"), contentType)
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if body == "" {
			t.Errorf("%s is empty", path)
		}
	}
	for _, request := range []string{
		"POST /", "GET /playground/", "GET /playground/none.js", "GET /playground/../go.mod", "GET /playground/%2e%2e/client/index.js",
		"GET /index.html", "POST /playground/app.js",
	} {
		method, path, _ := strings.Cut(request, " ")
		_, body := get(method, path)
		equal(t, request, body, "next")
	}
	resp, body := get(http.MethodHead, "/")
	equal(t, "HEAD", resp.StatusCode, http.StatusOK)
	equal(t, "HEAD", body, "")
}

// A policy that allows nothing inline is no help to a page that has something
// inline: it would be dead.
func TestPlaygroundHasNothingInline(t *testing.T) {
	page := readFile(t, "playground/index.html")
	if found := regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son\w+=|\sstyle=|(src|href)="(https?:)?//`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
}
