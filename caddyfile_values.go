package llmstream

import (
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// unmarshalBlock reads the options of a block, each at most once.
func unmarshalBlock(d *caddyfile.Dispenser, nesting int, options map[string]func() error) error {
	seen := make(map[string]bool)
	for d.NextBlock(nesting) {
		option := d.Val()
		unmarshal := options[option]
		if unmarshal == nil {
			return d.Errf("unknown option %q", option)
		}
		if seen[option] {
			return d.Errf("%s is given twice", option)
		}
		seen[option] = true
		if err := unmarshal(); err != nil {
			return err
		}
	}
	return nil
}

// unmarshalArg reads the one argument of an option.
func unmarshalArg(d *caddyfile.Dispenser, into *string) error {
	option := d.Val()
	if !d.Args(into) || d.NextArg() {
		return d.Errf("%s: takes one argument", option)
	}
	return nil
}

// noArgs makes sure that a block has no arguments before it.
func noArgs(d *caddyfile.Dispenser) error {
	option := d.Val()
	if d.NextArg() {
		return d.Errf("%s: takes no argument before its block", option)
	}
	return nil
}

// unmarshalSize reads a size in bytes, at least 1.
func unmarshalSize(d *caddyfile.Dispenser, into *int64) error {
	option := d.Val()
	var arg string
	if err := unmarshalArg(d, &arg); err != nil {
		return err
	}
	size, err := humanize.ParseBytes(arg)
	if err != nil {
		return d.Errf("%s: %q is not a size", option, arg)
	}
	if size < 1 || size > maxSize {
		return d.Errf("%s: must be from 1 byte to 1 TiB, not %s", option, arg)
	}
	*into = int64(size)
	return nil
}

// maxSize is the largest size that an option takes, in bytes.
const maxSize = 1 << 40

// unmarshalCount reads a number, at least 1.
func unmarshalCount(d *caddyfile.Dispenser, into *int) error {
	option := d.Val()
	var arg string
	if err := unmarshalArg(d, &arg); err != nil {
		return err
	}
	return parseCount(d, option, arg, into)
}

// parseCount reads a number, at least 1, from an argument.
func parseCount(d *caddyfile.Dispenser, option, arg string, into *int) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return d.Errf("%s: %q is not a number", option, arg)
	}
	if n < 1 {
		return d.Errf("%s: must be at least 1, not %d", option, n)
	}
	*into = n
	return nil
}

// unmarshalDuration reads a duration above 0.
func unmarshalDuration(d *caddyfile.Dispenser, into *caddy.Duration) error {
	option := d.Val()
	var arg string
	if err := unmarshalArg(d, &arg); err != nil {
		return err
	}
	return parseDuration(d, option, arg, into)
}

// parseDuration reads a duration above 0 from an argument.
func parseDuration(d *caddyfile.Dispenser, option, arg string, into *caddy.Duration) error {
	dur, err := caddy.ParseDuration(arg)
	if err != nil {
		return d.Errf("%s: %q is not a duration", option, arg)
	}
	if dur <= 0 {
		return d.Errf("%s: must be longer than 0, not %s", option, arg)
	}
	*into = caddy.Duration(dur)
	return nil
}

// off is the value of a duration or a count that is switched off: unlike zero,
// which stands for the default.
const off = -1

// unmarshalTimeout reads a duration above 0, or "off".
func unmarshalTimeout(d *caddyfile.Dispenser, into *caddy.Duration) error {
	option := d.Val()
	var arg string
	if err := unmarshalArg(d, &arg); err != nil {
		return err
	}
	if arg == "off" {
		*into = off
		return nil
	}
	return parseDuration(d, option, arg, into)
}

// orDefault returns the duration that a setting stands for: 0 where it is off.
func orDefault(setting caddy.Duration, standard time.Duration) time.Duration {
	switch {
	case setting == 0:
		return standard
	case setting < 0:
		return 0
	}
	return time.Duration(setting)
}
