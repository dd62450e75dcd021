package llmsim_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// Every file in testdata/adapt is a Caddyfile, a line of dashes, and the JSON of
// its routes or a part of the error.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(content), "\n----------\n")
			if !ok {
				t.Fatal("no line of dashes")
			}
			want = strings.TrimSpace(want)
			got, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input+"\n"), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %s", err, want)
				}
				return
			}
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			if got := routes(t, got); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

// routes returns the routes of the one server of a configuration.
func routes(t *testing.T, config []byte) string {
	t.Helper()
	var c struct {
		Apps struct {
			HTTP struct {
				Servers struct {
					Srv0 struct {
						Routes json.RawMessage `json:"routes"`
					} `json:"srv0"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	decode(t, string(config), &c)
	pretty, err := json.MarshalIndent(c.Apps.HTTP.Servers.Srv0.Routes, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return string(pretty)
}

// load sets up the handler from JSON as Caddy does, and undoes it at the end.
func load(t *testing.T, config string) (*llmsim.Handler, error) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	module, err := ctx.LoadModuleByID("http.handlers.llmsim", json.RawMessage(config))
	if err != nil {
		return nil, err
	}
	return module.(*llmsim.Handler), nil
}

func TestHandlerDefaults(t *testing.T) {
	for _, c := range []struct {
		config string
		took   string
		tokens int
	}{
		{`{}`, "8.16s", 200},
		{`{"tokens":11,"reasoning":1,"interval":"1s","ttft":"1m"}`, "1m11s", 11},
		{`{"tokens":3,"interval":0,"ttft":0}`, "0s", 3},
		{`{"tokens":0}`, "0s", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			handler, err := load(t, c.config)
			if err != nil {
				t.Fatal(err)
			}
			w := newClockWriter()
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
				t.Error("the next handler was called")
				return nil
			})
			r := httptest.NewRequest(http.MethodPost, "/api/chat", strings.NewReader("{}"))
			if err := handler.ServeHTTP(w, r, next); err != nil {
				t.Fatal(err)
			}
			if got := readOllama(t, w.body.String()); got.text != llmsim.Text(c.tokens) || w.last.String() != c.took {
				t.Errorf("%s: %d tokens in %v, want %d in %s", c.config, got.out, w.last, c.tokens, c.took)
			}
		})
	}
}

func TestHandlerRefusesOptions(t *testing.T) {
	for config, option := range map[string]string{
		`{"tokens":-1}`:      "tokens",
		`{"interval":"-1s"}`: "interval",
		`{"fault":"burn"}`:   "burn",
		`{"status":200}`:     "status",
		`{"server":"vllm"}`:  "vllm",
		`{"speed":1}`:        "speed",
	} {
		if _, err := load(t, config); err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", config, err)
		}
	}
}
