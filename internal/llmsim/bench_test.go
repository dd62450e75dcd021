package llmsim_test

import (
	"net/http"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// discard is a client that reads everything and keeps nothing.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Flush()              {}

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// BenchmarkToken measures one token of a stream without pauses.
func BenchmarkToken(b *testing.B) {
	for _, d := range dialects {
		b.Run(d.name, func(b *testing.B) {
			const tokens = 1000
			backend := &llmsim.Backend{Options: llmsim.Options{Tokens: tokens}}
			w := &discard{header: make(http.Header)}
			b.ReportAllocs()
			requests := 0
			for i := 0; i < b.N; i += tokens {
				backend.ServeHTTP(w, received(http.MethodPost, d.path, d.streaming, d.header()...))
				requests++
			}
			b.ReportMetric(float64(w.bytes)/float64(requests*tokens), "bytes/token")
		})
	}
}
