// Package rig runs a real Caddy with this module inside a test, on real
// sockets, with backends that the test scripts and clients that read what
// comes back. Caddy is one for a process: tests that use it do not run beside
// one another.
package rig

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile" // the adapter
	_ "github.com/caddyserver/caddy/v2/modules/standard"          // the modules that a Caddyfile names
)

// Caddy is the running Caddy of a test.
type Caddy struct {
	tb testing.TB
	// Addr is where its first site listens, host and port.
	Addr string
	// TLSAddr is an address for a site with TLS.
	TLSAddr string
	logs    *logBuffer
}

// Start runs Caddy with a Caddyfile until the test ends. In the Caddyfile,
// ADDR and TLSADDR stand for free addresses of this machine.
func Start(tb testing.TB, caddyfile string) *Caddy {
	tb.Helper()
	c := &Caddy{tb: tb, Addr: FreeAddr(tb), TLSAddr: FreeAddr(tb), logs: new(logBuffer)}
	dir := tb.TempDir()
	if err := os.Setenv("XDG_DATA_HOME", dir); err != nil { //nolint:usetesting // a TB of a benchmark too, and Caddy reads it late
		tb.Fatal(err)
	}
	current.Store(c.logs)
	c.Load(caddyfile)
	tb.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			tb.Errorf("stopping Caddy: %v", err)
		}
	})
	return c
}

// Load replaces the configuration, as a reload does.
func (c *Caddy) Load(caddyfile string) {
	c.tb.Helper()
	if err := c.TryLoad(caddyfile); err != nil {
		c.tb.Fatal(err)
	}
}

// TryLoad is Load for a configuration that may be refused.
func (c *Caddy) TryLoad(caddyfile string) error {
	_, port, _ := net.SplitHostPort(c.TLSAddr)
	admin := "\tadmin off\n"
	if strings.Contains(caddyfile, "\tadmin ") {
		admin = ""
	}
	global := fmt.Sprintf("{\n"+admin+"\tskip_install_trust\n\tauto_https disable_redirects\n\thttps_port %s\n", port) +
		"\tlog {\n\t\toutput llmstream_rig\n\t\tformat json\n\t\tlevel DEBUG\n\t}\n"
	caddyfile = strings.NewReplacer("TLSADDR", c.TLSAddr, "ADDR", "http://"+c.Addr).Replace(caddyfile)
	if rest, ok := strings.CutPrefix(strings.TrimSpace(caddyfile), "{\n"); ok {
		caddyfile = global + rest
	} else {
		caddyfile = global + "}\n" + caddyfile
	}
	cfg, err := Adapt(withCertificate(c.tb, c.tb.TempDir(), caddyfile))
	if err != nil {
		return err
	}
	return caddy.Load(cfg, true)
}

// WaitTLS waits until the site at TLSAddr has its certificate, which Caddy gets
// after it has started.
func (c *Caddy) WaitTLS(config *tls.Config) {
	c.tb.Helper()
	dialer := tls.Dialer{Config: config}
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := dialer.DialContext(c.tb.Context(), "tcp", c.TLSAddr)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			c.tb.Fatal(err)
		}
		runtime.Gosched()
	}
}

// Logs returns what Caddy has logged, one JSON object on each line.
func (c *Caddy) Logs() string { return c.logs.String() }

// Adapt turns a Caddyfile into JSON.
func Adapt(caddyfile string) ([]byte, error) {
	adapter := caddyconfig.GetAdapter("caddyfile")
	cfg, _, err := adapter.Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	return cfg, err
}

// FreeAddr returns an address of this machine on which nothing listens.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}
