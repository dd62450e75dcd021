package deliver

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// AddedFields returns the fields of a response to one client that came from the
// upstream, and not from handlers before us, which have set own: other clients
// get those too, except what concerns the client that asked.
func AddedFields(header, own http.Header) http.Header {
	added := make(http.Header)
	for field, values := range header {
		had := own[field]
		switch {
		case isPersonal(field) || slices.Equal(values, had):
		case len(values) > len(had) && slices.Equal(values[:len(had)], had):
			added[field] = values[len(had):]
		default:
			added[field] = values
		}
	}
	return added
}

// isPersonal reports whether a field is for the client that asked: a cookie, a
// challenge, what its origin may do, how long it may keep the answer.
func isPersonal(field string) bool {
	switch field {
	case "Set-Cookie", "Www-Authenticate", "Clear-Site-Data", "Expires", "Age", "Etag", "Surrogate-Control", "Cdn-Cache-Control":
		return true
	}
	return strings.HasPrefix(field, "Access-Control-") || strings.HasPrefix(field, "Proxy-")
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
