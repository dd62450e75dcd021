package rig

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() { caddy.RegisterModule(new(logWriter)) }

// current is where the running test's Caddy logs to.
var current atomic.Pointer[logBuffer]

// logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// logWriter is the Caddy log writer behind `output llmstream_rig`.
type logWriter struct{}

// CaddyModule returns the Caddy module information.
func (*logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.logging.writers.llmstream_rig",
		New: func() caddy.Module { return new(logWriter) },
	}
}

// UnmarshalCaddyfile takes no arguments.
func (*logWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*logWriter) String() string    { return "llmstream_rig" }
func (*logWriter) WriterKey() string { return "llmstream_rig" }

// OpenWriter opens the log of the running test.
func (*logWriter) OpenWriter() (io.WriteCloser, error) { return sink{}, nil }

// sink writes to the log of whichever test runs.
type sink struct{}

func (sink) Close() error { return nil }
func (sink) Write(p []byte) (int, error) {
	if b := current.Load(); b != nil {
		return b.Write(p)
	}
	return len(p), nil
}

// Interface guards
var (
	_ caddy.WriterOpener    = (*logWriter)(nil)
	_ caddyfile.Unmarshaler = (*logWriter)(nil)
)
