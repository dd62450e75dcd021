package llmstream_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	llmstream "github.com/caddy-llmstream/caddy-llmstream"
)

// FuzzCaddyfile checks that any text after llm_stream is refused or becomes a
// configuration, which its JSON form keeps whole, and that loading it comes to a
// verdict.
func FuzzCaddyfile(f *testing.F) {
	for _, text := range []string{
		"", "{\n\temit text\n\tinclude reasoning tool_calls\n}", "{\n\tmax_streams gpu 200 {\n\t\tqueue 100 5s\n\t\tper {header.X} 4\n\t}\n}",
		"{\n\ttimeouts {\n\t\tfirst_token 5m\n\t\ttotal off\n\t\tread 1s\n\t}\n\theartbeat 15s\n\tbuffer 64\n\tslow_client drop\n}",
		"{\n\tresume /llm {\n\t\tkeep 10m\n\t\tmax_size 4MiB\n\t\towner anyone\n\t\tchannel {header.X-Chat-Id}\n\t}\n}",
		"{\n\tdrain {\n\t\tdeadline 30s\n\t\tspread 5s\n\t\tretry 2s\n\t\ton_reload off\n\t}\n}", "{\n\tmax_event 16EiB\n}",
		"{\n\tmax_clients 1\n\tmax_memory 1GiB\n\tmodel_label\n}", "{\n\tresume /llm {\n\t\tgrace 9223372036s\n\t}\n}", "{\n\tmax_streams off {\n\t\tper {a} -1\n\t}\n}",
		"{\n\theartbeat 1ns\n}", "x y z {", "{ } }", "{\n\tresume \"\n/\" {\n\t\tkeep `1h`\n\t}\n}", "{\n\tmax_event 9999999999999999999B\n}",
	} {
		f.Add(text)
	}
	ctx, err := caddy.ProvisionContext(new(caddy.Config))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := caddyfile.Tokenize([]byte("llm_stream "+text), "Caddyfile")
		if err != nil {
			return
		}
		_ = new(llmstream.App).UnmarshalCaddyfile(caddyfile.NewDispenser(slices.Clone(tokens)))
		d := caddyfile.NewDispenser(tokens)
		h := new(llmstream.Handler)
		if !d.Next() || h.UnmarshalCaddyfile(d) != nil {
			return
		}
		encoded, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		same := new(llmstream.Handler)
		if err := json.Unmarshal(encoded, same); err != nil || !reflect.DeepEqual(h, same) {
			t.Fatalf("%s becomes %+v, and from its JSON %+v, %v", text, h, same, err)
		}
		if err := errors.Join(h.Provision(ctx), h.Validate()); err == nil && h.Resume != nil {
			checkResume(t, h.Resume)
		}
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
	})
}

// checkResume checks what holds for every resume that loads.
func checkResume(t *testing.T, r *llmstream.Resume) {
	t.Helper()
	if !strings.HasPrefix(r.Prefix, "/") || strings.ContainsAny(r.Prefix, "*{}?#") || r.MaxSize > 1<<30 || r.MaxBody > 1<<30 || r.Keep <= 0 || r.Grace <= 0 {
		t.Errorf("%+v loads", r)
	}
}

// FuzzControl checks that no method, path, cursor or Accept field makes a control
// endpoint panic, answer anything but what it is to, or say a line of it.
func FuzzControl(f *testing.F) {
	for _, path := range []string{
		"/llm/streams/0000000000000000000000", "/llm/streams/", "/llm/cancel", "/llm/cancel/x", "/llm/channels/c", "/llm/channels/c/current", "/llm/channels//",
		"/llm", "/llm/", "/llmx/streams/a", "/llm/streams/a/b", "//llm/streams/a", "/llm/streams/\r\nX: y", "/llm/cancel?", "/LLM/streams/a", "/llm/streams/%00",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, "get", "OPTIONS"} {
			f.Add(method, path, "idempotency_key=k&follow=2", "0000000000000000000000:1", "application/json")
		}
	}
	ctx, err := caddy.ProvisionContext(new(caddy.Config))
	if err != nil {
		f.Fatal(err)
	}
	c := new(llmstream.Control)
	if err := errors.Join(json.Unmarshal([]byte(`{"resume":{"prefix":"/llm","owner":"{http.request.header.X-User}"}}`), c), c.Provision(ctx), c.Validate()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Cleanup() })
	f.Fuzz(func(t *testing.T, method, path, query, cursor, accept string) {
		left := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusTeapot)
			return nil
		})
		for _, user := range []string{"", "u"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
			r.Header = http.Header{"Last-Event-ID": {cursor}, "Accept": {accept}, "X-User": {user}}
			w := httptest.NewRecorder()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
			if strings.Contains(path, "/channels/") && user != "" {
				continue // it stays
			}
			if err := c.ServeHTTP(w, r, left); err != nil {
				t.Fatal(err)
			}
			switch w.Code {
			case http.StatusTeapot, http.StatusNotFound, http.StatusBadRequest, http.StatusNoContent:
			default:
				t.Errorf("%s %q: status %d", method, path, w.Code)
			}
			if body := w.Body.String(); strings.Count(body, "\n") > 1 || body != "" && !json.Valid([]byte(body)) {
				t.Errorf("%s %q: %q", method, path, body)
			}
		}
	})
}
