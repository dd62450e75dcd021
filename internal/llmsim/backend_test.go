package llmsim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

func TestOtherPaths(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 1}}
	post(b, "/api/chat", `{}`)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, "/v1/models", http.StatusOK, `"object":"list"`},
		{http.MethodGet, "/health", http.StatusOK, `{"status":"ok"}`},
		{http.MethodGet, "/stats", http.StatusOK, `{"started":1,"finished":1,"cancelled":0,"active":0}`},
		{http.MethodPost, "/v1/responses", http.StatusNotFound, `"error"`},
		{http.MethodGet, "/v1/nothing", http.StatusNotFound, `"error"`},
		{http.MethodPost, "/v1/models", http.StatusNotFound, `"error"`},
		{http.MethodDelete, "/v1/messages", http.StatusMethodNotAllowed, `"type":"error"`},
	} {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

func TestUnusableRequestIsRefused(t *testing.T) {
	b := &llmsim.Backend{}
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"not JSON", `{"stream":`, http.StatusBadRequest},
		{"another type", `{"stream":"yes"}`, http.StatusBadRequest},
		{"no choices", `{"n":0}`, http.StatusBadRequest},
		{"too many choices", `{"n":9}`, http.StatusBadRequest},
		{"no tokens", `{"max_tokens":0}`, http.StatusBadRequest},
		{"no tokens at all", `{"max_completion_tokens":-1}`, http.StatusBadRequest},
		{"no tokens of output", `{"max_output_tokens":0}`, http.StatusBadRequest},
		{"too large", `{"messages":"` + strings.Repeat("x", 32<<20) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, d := range dialects {
				w := d.post(b, c.body)
				if w.Code != c.status || !strings.Contains(w.Body.String(), `"error":`) {
					t.Errorf("%s: %d %s", d.path, w.Code, w.Body)
				}
			}
		})
	}
	if s := b.Stats(); s.Started != 0 {
		t.Errorf("refused requests are counted: %+v", s)
	}
}

func TestBodyThatBreaksIsRefused(t *testing.T) {
	b := &llmsim.Backend{}
	w := httptest.NewRecorder()
	body := io.MultiReader(strings.NewReader(`{"stream"`), brokenReader{})
	b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/messages", body))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d", w.Code)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"stream":true,"n":2,"model":"\ud800"}`, `{"max_tokens":1}`, `{"options":{"num_predict":-5}}`,
		`{` + tools + `,"tool_choice":{"type":"tool","name":"a\"b"}}`, `{"messages":[{"content":[{"type":"tool_result"}]}]}`,
	} {
		f.Add([]byte(body))
	}
	b := &llmsim.Backend{Options: llmsim.Options{Tokens: 3, Reasoning: 1}}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range dialects {
			w := d.post(b, string(body))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Fatalf("status %d", w.Code)
			}
			// Whatever names the request had, the response is well formed.
			if w.Code == http.StatusOK && !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
				d.readStream(t, w.Body.String())
			} else {
				d.readWhole(t, w.Body.String())
			}
		}
		if s := b.Stats(); s.Active != 0 || s.Cancelled != 0 {
			t.Fatalf("%+v", s)
		}
	})
}
