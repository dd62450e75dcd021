package llmstream

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// detach returns a request that can go on after the one it is made from has
// ended: with the context ctx, which must have the values of the original's,
// with its own body, and with its own replacer and variables, which still
// answer as the original's did at this moment. What it is answered goes to w.
//
// A prompt is large and its answer takes long: the body is let go of once it
// was sent and forget was called, after which {http.request.body} is empty.
func detach(ctx context.Context, r *http.Request, w http.ResponseWriter, body []byte) (up *http.Request, forget func()) {
	repl := caddy.NewReplacer()
	base := preparedRequest(r.Clone(ctx), repl, w)
	base.Body = io.NopCloser(bytes.NewReader(body)) // for {http.request.body}
	repl.Map(answersOf(r))

	vars := base.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	if orig, ok := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		maps.Copy(vars, orig)
	}
	ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, vars)
	ctx = context.WithValue(ctx, caddyhttp.ExtraLogFieldsCtxKey, new(caddyhttp.ExtraLogFields))
	up = base.WithContext(ctx)
	up.Header["Accept-Encoding"] = []string{"identity"}
	up.Body = io.NopCloser(&unsent{body})
	up.ContentLength = int64(len(body))
	up.TransferEncoding = nil
	if len(body) == 0 {
		up.Body = http.NoBody
	}
	return up, func() { base.Body = http.NoBody }
}

// unsent is what is still to be read of a request body.
type unsent struct{ rest []byte }

// Read implements io.Reader.
func (u *unsent) Read(p []byte) (int, error) {
	if len(u.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, u.rest)
	if u.rest = u.rest[n:]; len(u.rest) == 0 {
		u.rest = nil // an empty rest would keep all of it
	}
	return n, nil
}

// preparedRequest lets Caddy set a replacer up for a request. It is made from
// the request as the client sent it, so that placeholders for the original one
// are right, and then gets the method and URL that it has been rewritten to.
func preparedRequest(r *http.Request, repl *caddy.Replacer, w http.ResponseWriter) *http.Request {
	method, uri, rewritten := r.Method, r.RequestURI, *r.URL
	if orig, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		r.Method, r.RequestURI = orig.Method, orig.RequestURI
		r.URL = new(url.URL)
		*r.URL = *orig.URL
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	r = caddyhttp.PrepareRequest(r, repl, w, server)
	r.Method, r.RequestURI = method, uri
	*r.URL = rewritten
	return r
}

// answersOf returns a source of placeholders that answers what the replacer of
// a request knows, for everything that its copy can not know by itself:
// http.auth.*, captures of regular expressions, what map has set.
func answersOf(r *http.Request) caddy.ReplacerFunc {
	orig, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return func(string) (any, bool) { return nil, false }
	}
	snapshot := *orig // so that sources which are added later are not seen, and not raced with
	return snapshot.Get
}
