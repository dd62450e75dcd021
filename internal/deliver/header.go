package deliver

import (
	"maps"
	"net/http"
	"slices"
)

// AddedFields returns the fields of a response to one client that came from the
// upstream, and not from handlers before us, which have set own: other clients
// get those too, except what concerns the client that asked.
func AddedFields(header, own http.Header) http.Header {
	added := make(http.Header)
	for field, values := range header {
		had := own[field]
		switch {
		case !isShared(field) || slices.Equal(values, had):
		case len(values) > len(had) && slices.Equal(values[:len(had)], had):
			added[field] = values[len(had):]
		default:
			added[field] = values
		}
	}
	return added
}

// isShared reports whether a field is of the response and not of the client that
// asked: what else a backend sends may be a cookie, a token, a challenge, or what
// is left of that client's quota.
func isShared(field string) bool {
	switch field {
	case "Content-Language", "Server-Timing", "Vary", "X-Request-Id", "Request-Id",
		"Openai-Model", "Openai-Processing-Ms", "Openai-Version":
		return true
	}
	return false
}

// mergedHeader returns what a client gets that has own fields, of a response with
// the fields that AddedFields gave. Its own win.
func mergedHeader(own, added http.Header) http.Header {
	merged := maps.Clone(own)
	for field, values := range added {
		switch {
		case field == "Vary":
			merged[field] = slices.Concat(own[field], values)
		case len(own[field]) == 0:
			merged[field] = values
		}
	}
	return merged
}

// replaceHeader makes dst hold the fields of src and no others. Their values
// are copied: many clients may be given src, and handlers before us change what
// is in dst.
func replaceHeader(dst, src http.Header) {
	clear(dst)
	maps.Copy(dst, src.Clone())
}
