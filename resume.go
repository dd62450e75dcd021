package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// Resume keeps responses, so that they can be resumed after a cut, followed by
// others, and cancelled from elsewhere. A generation no longer belongs to the
// client who asked for it: it goes on when that one leaves.
type Resume struct {
	// The path prefix of the control endpoints, such as `/llm`: streams/{id},
	// cancel/{id} and channels/{channel} below it.
	Prefix string `json:"prefix,omitempty"`

	// How long a response can be read after its end. Default: 10m.
	Keep caddy.Duration `json:"keep,omitempty"`

	// The largest log of one response, in bytes. A longer response ends with
	// the error response_too_large. Default: 4 MiB.
	MaxSize int64 `json:"max_size,omitempty"`

	// How long a generation goes on that nobody reads; then the upstream is
	// cancelled. Default: 30s.
	Grace caddy.Duration `json:"grace,omitempty"`

	// Whom a response belongs to, a placeholder such as
	// `{http.auth.user.id}`: only the same value may follow or cancel it.
	// `anyone` says that knowing the id is enough, as it is without an owner.
	// Where it is configured and empty, a response can not be resumed.
	Owner string `json:"owner,omitempty"`

	// The channel on which responses are announced, a placeholder such as
	// `{http.request.header.X-Chat-Id}`. Needs an owner.
	Channel string `json:"channel,omitempty"`

	// Who shares ids, channels and idempotency keys. Default:
	// `{http.request.host}`.
	Scope string `json:"scope,omitempty"`

	// The largest request body, in bytes; it is read whole before the upstream
	// is called. A larger one is answered with 413. Default: 32 MiB.
	MaxBody int64 `json:"max_body,omitempty"`

	// What tells this route from others with the same prefix, so that a reload
	// sends clients away only where they find it again. The Caddyfile adapter
	// sets it to the matcher.
	Place string `json:"place,omitempty"`
}

// The defaults of Resume.
const (
	defaultKeep    = 10 * time.Minute
	defaultMaxSize = 4 << 20
	defaultGrace   = 30 * time.Second
	defaultScope   = "{http.request.host}"
	defaultMaxBody = 32 << 20
)

// ownerAnyone is the value of owner with which knowing an id is enough.
const ownerAnyone = "anyone"

func (r *Resume) provision() {
	r.Prefix = strings.TrimRight(r.Prefix, "/")
	if r.Keep == 0 {
		r.Keep = caddy.Duration(defaultKeep)
	}
	if r.MaxSize == 0 {
		r.MaxSize = defaultMaxSize
	}
	if r.Grace == 0 {
		r.Grace = caddy.Duration(defaultGrace)
	}
	if r.Scope == "" {
		r.Scope = defaultScope
	}
	if r.MaxBody == 0 {
		r.MaxBody = defaultMaxBody
	}
}

func (r *Resume) validate() error {
	switch {
	case !strings.HasPrefix(r.Prefix, "/"):
		return fmt.Errorf("resume: the prefix must be an absolute path below the root, such as /llm, not %q", cmp.Or(r.Prefix, "/"))
	case r.Keep < 0:
		return fmt.Errorf("keep: must be longer than 0, not %v", time.Duration(r.Keep))
	case r.Grace < 0:
		return fmt.Errorf("grace: must be longer than 0, not %v", time.Duration(r.Grace))
	case r.MaxSize < 1:
		return fmt.Errorf("max_size: must be at least 1 byte, not %d", r.MaxSize)
	case r.MaxBody < 1:
		return fmt.Errorf("max_body: must be at least 1 byte, not %d", r.MaxBody)
	case r.Owner != "" && r.Owner != ownerAnyone && !hasPlaceholder(r.Owner):
		return fmt.Errorf("owner: must be a placeholder or `anyone`; everybody would be %q", r.Owner)
	case r.Channel != "" && r.Owner == "":
		return errors.New("channel: needs an owner; say `owner anyone` where knowing the channel is enough")
	}
	return nil
}

// access returns who a request is for the responses of its scope. It reports
// false where an owner is configured and the request has none.
func (r *Resume) access(repl *caddy.Replacer) (fanout.Access, bool) {
	as := fanout.Access{Scope: repl.ReplaceAll(r.Scope, "")}
	if r.Owner == "" || r.Owner == ownerAnyone {
		return as, true
	}
	as.Owner = repl.ReplaceAll(r.Owner, "")
	return as, as.Owner != ""
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
		Request: req.Method + " " + req.URL.RequestURI(),
		Body:    hex.EncodeToString(sum[:]),
	}
}

// credentialHeaders carry what a client proves who it is with.
var credentialHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// callKey identifies an idempotency key together with who used it, without
// keeping the credentials themselves.
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

// readBody reads a request body whole, at most limit bytes.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= limit {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	n, err := io.Copy(&buf, io.LimitReader(r.Body, limit+1))
	switch {
	case n > limit:
		return nil, &event.Error{
			Code: codeRequestTooLarge, Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("the request body is larger than %d bytes", limit),
		}
	case err != nil:
		return nil, caddyhttp.Error(http.StatusBadRequest, fmt.Errorf("reading the request body: %w", err))
	}
	return buf.Bytes(), nil
}
