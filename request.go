package llmstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

// This file has what only Caddy knows of a request: placeholders, the path as
// the client sent it, a copy that outlives it, log fields.

// newRequest returns a request as it is relayed.
func (d *Delivery) newRequest(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, dialect string) *relay.Request {
	q := &relay.Request{
		Request: r, W: w, Next: answering{next}, Path: originalPath(r), Dialect: dialect,
		Cut:      cutOff(w),
		Keep:     d.app.keep,
		Observed: func(record *observe.Record) { observed(r, record) },
		Followed: func(f observe.Followed) { logField(r, zap.Object("llm_stream", f)) },
	}
	if _, idle := caddyhttp.IdleTimeoutsFromContext(r.Context()); idle != nil {
		q.Idle = idle
	}
	q.Detach = func(ctx context.Context, w http.ResponseWriter, body []byte) (*http.Request, func()) {
		return detach(ctx, r, w, body)
	}
	return q
}

// replacerOf returns the placeholders of a request.
func replacerOf(r *http.Request) *caddy.Replacer {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
}

// generates reports whether a request can start a generation: a POST, or a GET
// that asks for server-sent events. What a client says of itself beyond that does
// not decide whether the rules apply: a request with an Upgrade field is one like
// any other until the backend answers with 101.
func generates(r *http.Request) bool {
	switch strings.ToUpper(r.Method) {
	case http.MethodPost:
		return true
	case http.MethodGet:
		return deliver.Accepts(r, "text/event-stream")
	}
	return false
}

// isOwnEventID reports whether an id is one of those that our frames have: of a
// response that can be resumed, or the bare index of one that cannot.
func isOwnEventID(id string) bool {
	if _, _, err := fanout.ParseEventID(id); err == nil {
		return true
	}
	return id != "" && len(id) <= maxIndexDigits && strings.Trim(id, "0123456789") == ""
}

// maxIndexDigits is the length of the largest index.
const maxIndexDigits = 10

// originalPath returns the path as the client sent it. A backend's API is named
// by it even where an outer handle_path or rewrite has changed the rest.
func originalPath(r *http.Request) string {
	if orig, ok := originalOf(r); ok && orig.URL != nil {
		return orig.URL.Path
	}
	return r.URL.Path
}

// originalOf returns the request as the client sent it.
func originalOf(r *http.Request) (http.Request, bool) {
	orig, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	return orig, ok
}

// originalLine returns method, path and query as the client sent them: what a
// route makes of them is not what tells two calls apart.
func originalLine(r *http.Request) string {
	if orig, ok := originalOf(r); ok && orig.URL != nil {
		return orig.Method + " " + orig.URL.RequestURI()
	}
	return r.Method + " " + r.URL.RequestURI()
}

// statusOf returns the HTTP status that an error of the next handlers stands for,
// 0 where it stands for none.
func statusOf(err error) int {
	if handlerErr, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		return handlerErr.StatusCode
	}
	return 0
}

// access returns what a request may find of the responses of its scope. It
// reports false where an owner is configured and the request has none.
func (r *Resume) access(repl *caddy.Replacer) (fanout.Access, bool) {
	as := fanout.Access{Scope: normalScope(repl.ReplaceAll(r.Scope, ""))}
	if r.Owner == "" || r.Owner == ownerAnyone {
		return as, true
	}
	as.Owner = repl.ReplaceAll(r.Owner, "")
	return as, as.Owner != ""
}

// normalScope returns a scope without what makes no difference in the name of a
// host: its case and a final dot.
func normalScope(scope string) string {
	return strings.TrimSuffix(strings.ToLower(scope), ".")
}

// spec is how the response to a request is kept.
func (r *Resume) spec(q *relay.Request, as fanout.Access, body []byte) fanout.Spec {
	return fanout.Spec{
		Access:  as,
		Dialect: q.Dialect,
		Call:    r.call(q.Request, as, body),
		Channel: replacerOf(q.Request).ReplaceAll(r.Channel, ""),
		Keep:    time.Duration(r.Keep),
		Grace:   time.Duration(r.Grace),
		MaxSize: int(r.MaxSize),
	}
}

// call identifies a request with an idempotency key.
func (r *Resume) call(req *http.Request, as fanout.Access, body []byte) fanout.Call {
	key := req.Header.Get("Idempotency-Key")
	if key == "" {
		return fanout.Call{}
	}
	sum := sha256.Sum256(body)
	return fanout.Call{
		Key:     callKey(req, as, key),
		Request: r.Place + " " + originalLine(req),
		Body:    hex.EncodeToString(sum[:]),
	}
}

// credentialHeaders carry what a client proves its identity with.
var credentialHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// callKey identifies an idempotency key together with the client that used it,
// without keeping the credentials themselves.
func callKey(req *http.Request, as fanout.Access, key string) string {
	hash := sha256.New()
	for _, part := range []string{as.Scope, as.Owner, key} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	for _, field := range credentialHeaders {
		for _, value := range req.Header[field] {
			_, _ = fmt.Fprintf(hash, "%s:%d:%s", field, len(value), value)
		}
	}
	return string(hash.Sum(nil))
}

// logField puts a field into the access log of a request.
func logField(r *http.Request, field zap.Field) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(field)
	}
}

// observed makes a response visible in the access log and the placeholders of
// the request that it answers.
func observed(r *http.Request, record *observe.Record) {
	logField(r, zap.Object("llm_stream", record))
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	repl.Map(func(key string) (any, bool) {
		switch key {
		case "http.llm_stream.response_id":
			return record.ID, true
		case "http.llm_stream.outcome":
			return string(record.Snapshot().Outcome), true
		case "http.llm_stream.model":
			return record.Model(), true
		case "http.llm_stream.first_token_ms":
			return observe.Milliseconds(record.Snapshot().FirstToken), true
		}
		return nil, false
	})
}

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
	withoutUpgrade(up.Header) // the connection is not its own
	up.Body = io.NopCloser(&unsent{body})
	up.ContentLength = int64(len(body))
	up.TransferEncoding = nil
	if len(body) == 0 {
		up.Body = http.NoBody
	}
	return up, func() { base.Body = http.NoBody }
}

// withoutUpgrade removes what asks for another protocol on the connection (RFC
// 9110, section 7.8).
func withoutUpgrade(h http.Header) {
	h.Del("Upgrade")
	h.Del("Http2-Settings")
	h.Del("Connection")
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
	if orig, ok := originalOf(r); ok {
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
// a request knows, for everything that its copy cannot know by itself:
// http.auth.*, captures of regular expressions, what map has set.
func answersOf(r *http.Request) caddy.ReplacerFunc {
	orig, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return func(string) (any, bool) { return nil, false }
	}
	snapshot := *orig // so that sources which are added later are not seen, and not raced with
	return snapshot.Get
}
