package deliver_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	busy := &deliver.RefusalError{
		Answer:     &event.Error{Code: event.CodeTooManyClients, Status: 503, Message: "too many clients"},
		RetryAfter: 1100 * time.Millisecond, Reason: event.ReasonBusy,
	}
	full := &deliver.RefusalError{
		Answer:     &event.Error{Code: event.CodeQueueFull, Status: 429, Message: "m"},
		RetryAfter: time.Second, Reason: event.ReasonBusy,
	}
	unknown := &deliver.RefusalError{Answer: &event.Error{Code: event.CodeUnknownResponse, Status: 404, Message: "m"}}
	tooLarge := &deliver.RefusalError{Answer: &event.Error{Code: event.CodeEventTooLarge, Status: 502, Message: "m"}}
	const reconnect = "event: reconnect\nretry: 1100\ndata: {\"reason\":\"busy\",\"retry_ms\":1100}\n\n"
	for name, tc := range map[string]struct {
		refusal        *deliver.RefusalError
		method, accept string
		lastEventID    string
		dialect        string
		status         int
		retryAfter     string
		body           string
	}{
		"a POST": {
			refusal: busy, method: "POST", accept: "text/event-stream", status: 503, retryAfter: "2",
			body: `{"error":{"type":"overloaded_error","code":"too_many_clients","message":"too many clients"}}` + "\n",
		},
		"an EventSource":                {refusal: busy, method: "GET", accept: "text/event-stream", status: 200, body: reconnect},
		"an EventSource that came back": {refusal: busy, method: "GET", accept: "text/event-stream", lastEventID: "id:7", status: 200, body: "id: id:7\n" + reconnect},
		"a GET that accepts anything":   {refusal: busy, method: "GET", accept: "*/*", status: 503, retryAfter: "2", body: `"code":"too_many_clients"`},
		"an EventSource, 429":           {refusal: full, method: "GET", accept: "text/event-stream", status: 429, retryAfter: "1", body: `"type":"rate_limit_error"`},
		"an EventSource, 404":           {refusal: unknown, method: "GET", accept: "text/event-stream", status: 404, body: `"code":"unknown_response"`},
		"what no retry can better":      {refusal: tooLarge, method: "POST", status: 502, body: `"code":"event_too_large"`},
		"in the dialect anthropic":      {refusal: full, method: "POST", dialect: "anthropic", status: 429, retryAfter: "1", body: `{"type":"error","error":{"type":"rate_limit_error"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(tc.method, "/", nil)
			r.Header.Set("Accept", tc.accept)
			if tc.lastEventID != "" {
				r.Header.Set("Last-Event-ID", tc.lastEventID)
			}
			w := httptest.NewRecorder()
			w.Header().Set("Content-Length", "7")
			w.Header().Set("Content-Encoding", "gzip")
			tc.refusal.Write(w, r, tc.dialect, "")
			equal(t, "status", w.Code, tc.status)
			equal(t, "Retry-After", w.Header().Get("Retry-After"), tc.retryAfter)
			equal(t, "X-Should-Retry", w.Header().Get("X-Should-Retry") == "false", tc.refusal == tooLarge)
			equal(t, "body fields", w.Header().Get("Content-Length")+w.Header().Get("Content-Encoding"), "")
			contains(t, w.Body.String(), tc.body)
			contentType, cache := "application/json", "no-store"
			if tc.status == http.StatusOK {
				contentType, cache = "text/event-stream; charset=utf-8", "no-cache, no-transform"
				equal(t, "body", w.Body.String(), tc.body)
			}
			equal(t, "Content-Type", w.Header().Get("Content-Type"), contentType)
			equal(t, "Cache-Control", w.Header().Get("Cache-Control"), cache)
		})
	}
}
