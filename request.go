package llmstream

import (
	"mime"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// generates reports whether a request can start a generation: a POST, or a GET
// that asks for server-sent events. Upgrades never do.
func generates(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
		return !isUpgrade(r)
	case http.MethodGet:
		return acceptsEventStream(r) && !isUpgrade(r)
	}
	return false
}

// isUpgrade reports whether the connection is to become one of another
// protocol (RFC 9110, section 7.8).
func isUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != ""
}

// acceptsEventStream reports whether the client names server-sent events among
// what it accepts.
func acceptsEventStream(r *http.Request) bool { return accepts(r, eventStream) }

// accepts reports whether the client names a media type among what it accepts.
// A wildcard is not enough: everybody sends one.
func accepts(r *http.Request, mediaType string) bool {
	for _, line := range r.Header["Accept"] {
		for part := range strings.SplitSeq(line, ",") {
			media, _, err := mime.ParseMediaType(part)
			if err == nil && media == mediaType {
				return true
			}
		}
	}
	return false
}

const eventStream = "text/event-stream"

// isOwnEventID reports whether the client comes back with an id of a frame
// that we sent.
func isOwnEventID(r *http.Request) bool {
	_, _, err := fanout.ParseEventID(r.Header.Get("Last-Event-ID"))
	return err == nil
}

// originalPath returns the path as the client sent it. A backend's API is named
// by it even where an outer handle_path or rewrite has changed the rest.
func originalPath(r *http.Request) string {
	if orig, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && orig.URL != nil {
		return orig.URL.Path
	}
	return r.URL.Path
}
