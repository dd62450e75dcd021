package relay

import (
	"context"
	"maps"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// upstreamRequest is the request as the next handlers see it, where it is made
// for a client that stays: with the context ctx, and for a stream that needs no
// decompression. asks is called once, when it is known that the request asks for
// a stream.
func (q *Request) upstreamRequest(ctx context.Context, cancel context.CancelCauseFunc, c *deliver.Conn, record *observe.Record, asks func()) *http.Request {
	up := q.WithContext(ctx)
	up.Header = maps.Clone(q.Header)
	up.Header["Accept-Encoding"] = []string{"identity"}
	if q.Body != nil && q.Body != http.NoBody {
		up.Body = q.body
	}
	q.body.expired = func() { cancel(ingest.ErrRequestTimeout) }
	early := wantsStreamEarly(q)
	if early {
		asks()
	}
	q.body.onScanned(func(said asked) {
		c.WantUsage(said.usage)
		record.Requested(said.model)
		if !early && wantsStream(q, said.stream) {
			asks()
		}
	})
	return up
}
