package deliver

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// RefusalError is the answer to a request that gets no response: an error of
// ours, as a status and a JSON body in the shape of the dialect.
type RefusalError struct {
	Answer *event.Error
	// RetryAfter is how long the client is to wait; 0 where coming again is of
	// no use.
	RetryAfter time.Duration
	// Reason is that of a reconnect frame, where one is sent instead.
	Reason event.Reason
}

// Error implements the error interface.
func (e *RefusalError) Error() string { return e.Answer.Error() }

// Write answers the request. Nothing of a response must have been written. An
// EventSource takes every status but 200 for final, so where the server is to
// blame it is told to reconnect.
func (e *RefusalError) Write(w http.ResponseWriter, r *http.Request, dialect, responseID string) {
	h := w.Header()
	for _, field := range bodyHeaders {
		h.Del(field)
	}
	if e.Answer.Status == http.StatusServiceUnavailable && e.RetryAfter > 0 && r.Method == http.MethodGet && Accepts(r, eventStream) {
		channel := emit.NewChannel()
		channel.Header(h)
		w.WriteHeader(http.StatusOK)
		bw := bufio.NewWriter(w)
		channel.Reconnect(bw, r.Header.Get("Last-Event-ID"), e.RetryAfter, string(e.Reason))
		_ = bw.Flush()
		return
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if e.Answer.Permanent() {
		h.Set("X-Should-Retry", "false")
	}
	if e.Answer.Code == event.CodeRequestTimeout && r.ProtoMajor == 1 {
		h.Set("Connection", "close") // what still comes of the body must not be read as a request
	}
	w.WriteHeader(e.Answer.Status)
	_, _ = w.Write(append(emit.AppendErrorBody(nil, dialect, e.Answer, responseID), '\n'))
}

// bodyHeaders are the header fields that speak of a body which is not sent as
// it came.
var bodyHeaders = []string{
	"Content-Length", "Content-Encoding", "Content-Range", "Accept-Ranges",
	"Content-Md5", "Content-Digest", "Repr-Digest", "Digest", "Etag", "Last-Modified", "Trailer",
}

// Accepts reports whether the client names a media type among those that it
// accepts. A wildcard is not enough: every client sends one. Parameters are not
// looked at: a malformed one must not hide what a backend sees all the same.
func Accepts(r *http.Request, mediaType string) bool {
	for _, line := range r.Header["Accept"] {
		for part := range strings.SplitSeq(line, ",") {
			media, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.Trim(media, " \t"), mediaType) {
				return true
			}
		}
	}
	return false
}
