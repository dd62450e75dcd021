package llmstream_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	llmstream "github.com/caddy-llmstream/caddy-llmstream"
)

// What backends send for one token, about 300 and 150 bytes.
const (
	benchOpenAI = `data: {"id":"chatcmpl-C4HqHBe4xca0k0EzsCnf1t6V3YFXp","object":"chat.completion.chunk",` +
		`"created":1755137933,"model":"gpt-5-nano-2025-08-07","service_tier":"default","system_fingerprint":null,` +
		`"choices":[{"index":0,"delta":{"content":" can"},"finish_reason":null}],"obfuscation":"CYlcrzAbbA7aasdg"}` + "\n\n"
	benchAnthropicStart = "event: message_start\n" + `data: {"type":"message_start","message":{"model":"claude-sonnet-4-5"}}` + "\n\n"
	benchAnthropic      = "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" throat pouch for"}          }` + "\n\n"
)

// BenchmarkDelta measures what one token costs between the write of the next
// handler and that to the server: split, decode, log, watch, encode, write and
// flush. With one stream all its memory is in the caches; with thousands of
// them, as on a busy server, little is.
func BenchmarkDelta(b *testing.B) {
	for _, bm := range []struct {
		name, first, piece string
		streams            int
	}{
		{"openai", benchOpenAI, benchOpenAI, 1},
		{"openai in thousands", benchOpenAI, benchOpenAI, 4096},
		{"anthropic", benchAnthropicStart + benchAnthropic, benchAnthropic, 1},
		{"anthropic in thousands", benchAnthropicStart + benchAnthropic, benchAnthropic, 4096},
	} {
		b.Run(bm.name, func(b *testing.B) {
			streams := openStreams(b, bm.streams)
			first, piece := []byte(bm.first), []byte(bm.piece)
			for range 2 {
				for _, w := range streams {
					if _, err := w.Write(first); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := streams[i%len(streams)].Write(piece); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// openStreams lets the handler serve n requests and returns what their next
// handlers write to. They end with the benchmark.
func openStreams(b *testing.B, n int) []http.ResponseWriter {
	b.Helper()
	ctx, err := caddy.ProvisionContext(new(caddy.Config))
	if err != nil {
		b.Fatal(err)
	}
	h := new(llmstream.Handler)
	if err := errors.Join(h.Provision(ctx), h.Validate()); err != nil {
		b.Fatal(err)
	}
	opened := make(chan http.ResponseWriter)
	done := make(chan struct{})
	var serving sync.WaitGroup
	for range n {
		serving.Go(func() {
			w, r := benchRequest(b.Context())
			_ = h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				opened <- w
				<-done
				_, err := w.Write([]byte("data: [DONE]\n\n"))
				return err
			}))
		})
	}
	streams := make([]http.ResponseWriter, n)
	for i := range streams {
		streams[i] = <-opened
	}
	b.Cleanup(func() {
		close(done)
		serving.Wait()
	})
	return streams
}

// benchRequest returns a request as Caddy's server hands it to a handler, and
// what the answer goes to.
func benchRequest(ctx context.Context) (http.ResponseWriter, *http.Request) {
	server := &discard{header: make(http.Header)}
	idle := &caddyhttp.IdleTimeoutWriter{
		ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: server},
		Ctrl:                  http.NewResponseController(server),
		Deadline:              caddyhttp.IdleDeadline{Timeout: time.Minute},
		Logger:                zap.NewNop(),
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"stream":true}`))
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), idle, nil)
	return idle, r.WithContext(caddyhttp.ContextWithIdleTimeouts(r.Context(), nil, idle))
}

// discard is a connection that takes everything.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header              { return d.header }
func (d *discard) WriteHeader(int)                  {}
func (d *discard) Write(p []byte) (int, error)      { return len(p), nil }
func (d *discard) FlushError() error                { return nil }
func (d *discard) SetWriteDeadline(time.Time) error { return nil }
