package llmstream

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Playground))
	httpcaddyfile.RegisterHandlerDirective("llm_stream_playground", parsePlayground)
	httpcaddyfile.RegisterDirectiveOrder("llm_stream_playground", httpcaddyfile.Before, "invoke")
}

// Playground serves a page at / on which a person can try what llm_stream does
// for a backend: a chat, with buttons that cut its connections, reload the
// server, cancel, and open a second device. It needs an llm_stream on the same
// site that emits text, with resume and a channel that comes from the header
// X-Chat-Id. All other requests go to the next handler.
type Playground struct {
	// Where the page sends its questions, in the form of OpenAI's chat
	// completions. Default: `/v1/chat/completions`.
	Endpoint string `json:"endpoint,omitempty"`

	// The model that it asks for. Default: the first that the backend lists.
	Model string `json:"model,omitempty"`

	// The prefix of the control endpoints. Default: `/llm`.
	Prefix string `json:"prefix,omitempty"`

	// A path of the same site that reloads the server's configuration when it
	// gets a POST. Without it the page shows the command for a terminal. Any
	// client that can see the page can use it.
	Reload string `json:"reload,omitempty"`

	config []byte // what the page is told, as JSON
}

// The defaults of Playground.
const (
	defaultEndpoint = "/v1/chat/completions"
	defaultPrefix   = "/llm"
)

// playgroundFiles are the page and what it loads. The client is the one that is
// published, as it is.
//
//go:embed playground client/index.js
var playgroundFiles embed.FS

// playgroundAssets are where the page finds what it loads.
const playgroundAssets = "/playground/"

// The page loads what is beside it and nothing else, runs no script but its
// own, and is shown in no frame.
const playgroundPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// CaddyModule returns the Caddy module information.
func (*Playground) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_stream_playground",
		New: func() caddy.Module { return new(Playground) },
	}
}

// Provision sets up the handler.
func (p *Playground) Provision(caddy.Context) error {
	if p.Endpoint == "" {
		p.Endpoint = defaultEndpoint
	}
	if p.Prefix == "" {
		p.Prefix = defaultPrefix
	}
	var err error
	p.config, err = json.Marshal(map[string]string{
		"endpoint": p.Endpoint,
		"models":   strings.TrimSuffix(p.Endpoint, "/chat/completions") + "/models",
		"model":    p.Model,
		"prefix":   strings.TrimRight(p.Prefix, "/"),
		"reload":   p.Reload,
	})
	return err
}

// Validate makes sure that the page can ask what it is told to: its policy lets
// it speak to its own site alone.
func (p *Playground) Validate() error {
	for _, option := range []struct{ name, path string }{
		{"endpoint", p.Endpoint}, {"prefix", p.Prefix}, {"reload", p.Reload},
	} {
		if option.path != "" && (option.path[0] != '/' || strings.HasPrefix(option.path, "//")) {
			return fmt.Errorf("%s: expected a path of this site, such as /llm, not %q", option.name, option.path)
		}
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (p *Playground) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return next.ServeHTTP(w, r)
	}
	content, ok := p.file(r.URL.Path)
	if !ok {
		return next.ServeHTTP(w, r)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", playgroundPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // another build is another page
	name := path.Base(r.URL.Path)
	if r.URL.Path == "/" {
		name = "index.html"
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	return nil
}

// file returns what the page finds at a path.
func (p *Playground) file(urlPath string) ([]byte, bool) {
	var name string
	switch urlPath {
	case "/":
		name = "playground/index.html"
	case playgroundAssets + "config.json":
		return p.config, true
	case playgroundAssets + "client.js":
		name = "client/index.js"
	default:
		asset, ok := strings.CutPrefix(urlPath, playgroundAssets)
		if !ok || !fs.ValidPath(asset) {
			return nil, false
		}
		name = "playground/" + asset
	}
	content, err := playgroundFiles.ReadFile(name)
	return content, err == nil
}

func parsePlayground(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	p := new(Playground)
	return p, p.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_stream_playground [<matcher>] {
//		endpoint <path>
//		model    <name>
//		prefix   <path>
//		reload   <path>
//	}
//
// Every option may be left out.
func (p *Playground) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := noArgs(d); err != nil {
		return err
	}
	b := newOptionBlock(d)
	err := b.unmarshal(0, map[string]func() error{
		"endpoint": func() error { return unmarshalArg(d, &p.Endpoint) },
		"model":    func() error { return unmarshalArg(d, &p.Model) },
		"prefix":   func() error { return unmarshalArg(d, &p.Prefix) },
		"reload":   func() error { return unmarshalArg(d, &p.Reload) },
	})
	if err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return b.refuse(err)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Playground)(nil)
	_ caddy.Validator             = (*Playground)(nil)
	_ caddyfile.Unmarshaler       = (*Playground)(nil)
	_ caddyhttp.MiddlewareHandler = (*Playground)(nil)
)
