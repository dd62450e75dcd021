package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Config says how to reach Redis. Only URL is required. In a Caddyfile it is
//
//	redis <url> {
//		username  <name>
//		password  <password>
//		prefix    <string>
//		timeout   <duration>
//		lease     <duration>
//		ca        <file>
//		cert      <file> <key file>
//		server_name <name>
//		sentinel_username <name>
//		sentinel_password <password>
//	}
type Config struct {
	// URL is redis://[user:password@]host[:port][/database], rediss:// for TLS,
	// or unix:///path. More nodes of a cluster, or more sentinels, follow as
	// ?addr=host:port&addr=…; with &master_set=name the addresses are those of
	// sentinels. A cluster is recognized by asking the node.
	URL string `json:"url"`

	// Username and Password are those of an ACL user; they replace those of the
	// URL.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`

	// SentinelUsername and SentinelPassword are for the sentinels.
	SentinelUsername string `json:"sentinel_username,omitempty"`
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// Prefix begins every key and every channel. Default: "llm:".
	Prefix string `json:"prefix,omitempty"`

	// Timeout is how long one call may take, connecting included. Default: 1s.
	Timeout Duration `json:"timeout,omitempty"`

	// Lease is how long a replica may be silent before others take it for dead
	// and end its responses. Default: 7s.
	Lease Duration `json:"lease,omitempty"`

	// CA is a file with the certificates that the server's must be signed by;
	// Cert and Key are the files of the client's own. ServerName replaces the
	// host of the URL. They are for rediss:// only.
	CA         string `json:"ca,omitempty"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`
}

// The defaults and bounds of a Config.
const (
	defaultPrefix  = "llm:"
	defaultTimeout = time.Second
	defaultLease   = 7 * time.Second
	minLease       = time.Second
)

// Options are what a Caddyfile may say beside the URL.
var Options = []string{
	"username", "password", "prefix", "timeout", "lease", "ca", "cert", "server_name",
	"sentinel_username", "sentinel_password",
}

// Set sets what a Caddyfile calls option. The error is for the user.
func (c *Config) Set(option string, args ...string) error {
	texts := map[string]*string{
		"username": &c.Username, "password": &c.Password, "prefix": &c.Prefix, "ca": &c.CA,
		"server_name": &c.ServerName, "sentinel_username": &c.SentinelUsername,
		"sentinel_password": &c.SentinelPassword,
	}
	durations := map[string]*Duration{"timeout": &c.Timeout, "lease": &c.Lease}
	want := 1
	if option == "cert" {
		want = 2
	}
	if len(args) != want {
		return fmt.Errorf("%s: expected %d arguments, found %d", option, want, len(args))
	}
	switch {
	case option == "cert":
		c.Cert, c.Key = args[0], args[1]
	case texts[option] != nil:
		*texts[option] = args[0]
	case durations[option] != nil:
		if err := durations[option].UnmarshalText([]byte(args[0])); err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
	default:
		return fmt.Errorf("unknown option of the redis store: %s", option)
	}
	return nil
}

// Validate finds what cannot work, without asking Redis.
func (c *Config) Validate() error {
	_, err := c.options()
	return err
}

// Duration is a time.Duration that is text in JSON, such as "1s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err == nil && parsed <= 0 {
		err = errors.New("expected a duration above 0")
	}
	*d = Duration(parsed)
	return err
}

// or returns the duration, or a default for 0.
func (d Duration) or(otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return time.Duration(d)
}

// The buffers of a connection. A replica has one for commands and one for
// messages; a batch has at most some hundred kilobytes, mostly less than one.
const (
	bufferSize = 64 << 10
	ringScale  = 10 // commands under way on one connection: 2^10
)

// options returns what rueidis wants to know.
func (c *Config) options() (rueidis.ClientOption, error) {
	if c.URL == "" {
		return rueidis.ClientOption{}, errors.New("redis store: url is missing")
	}
	opt, err := rueidis.ParseURL(c.URL)
	if err != nil {
		return opt, fmt.Errorf("redis store: url: %w", withoutURL(err))
	}
	if c.Username != "" {
		opt.Username = c.Username
	}
	if c.Password != "" {
		opt.Password = c.Password
	}
	opt.Sentinel.Username, opt.Sentinel.Password = c.SentinelUsername, c.SentinelPassword
	if lease := c.Lease.or(defaultLease); lease < minLease {
		return opt, fmt.Errorf("redis store: lease must be at least %v", minLease)
	}
	if err := c.secure(&opt); err != nil {
		return opt, fmt.Errorf("redis store: %w", err)
	}
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.TLSConfig = opt.TLSConfig
		opt.Sentinel.Dialer.Timeout = c.Timeout.or(defaultTimeout)
		opt.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	opt.Dialer.Timeout = c.Timeout.or(defaultTimeout)
	opt.ConnWriteTimeout = 2 * c.Timeout.or(defaultTimeout) // a stalled connection is given up after it
	opt.ClientName = "caddy-llmstream"
	opt.DisableCache = true
	opt.DisableRetry = true // what is tried again, and when, is decided above
	opt.AlwaysPipelining = true
	opt.PipelineMultiplex = -1 // one connection for each node
	opt.BlockingPoolSize = 4   // one is used, for messages
	opt.RingScaleEachConn = ringScale
	opt.ReadBufferEachConn, opt.WriteBufferEachConn = bufferSize, bufferSize
	return opt, nil
}

// secure sets up TLS.
func (c *Config) secure(opt *rueidis.ClientOption) error {
	if c.CA == "" && c.Cert == "" && c.ServerName == "" {
		return nil
	}
	if opt.TLSConfig == nil {
		return errors.New("ca, cert and server_name need a rediss:// url")
	}
	if c.ServerName != "" {
		opt.TLSConfig.ServerName = c.ServerName
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return fmt.Errorf("ca: %w", err)
		}
		opt.TLSConfig.RootCAs = x509.NewCertPool()
		if !opt.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("ca: no certificate in %s", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return fmt.Errorf("cert: %w", err)
		}
		opt.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// withoutURL drops the URL from an error of net/url: it may have the password.
func withoutURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "parse ") {
		return inner
	}
	return err
}
