package llmstream

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// optionBlock reads the options of a directive and of the blocks in it, each at
// most once in its block, and remembers where they stand.
type optionBlock struct {
	*caddyfile.Dispenser
	places map[string]caddyfile.Token
}

func newOptionBlock(d *caddyfile.Dispenser) optionBlock {
	return optionBlock{d, make(map[string]caddyfile.Token)}
}

// unmarshal reads the options of one block.
func (b optionBlock) unmarshal(nesting int, options map[string]func() error) error {
	seen, last := make(map[string]bool), ""
	for b.NextBlock(nesting) {
		option := b.Val()
		unmarshal := options[option]
		switch {
		case option == "{" && last != "":
			return b.Errf("%s: takes no block", last)
		case unmarshal == nil:
			return b.Errf("unknown option %q; must be one of %s", option,
				strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		case seen[option]:
			return b.Errf("%s is given twice", option)
		}
		seen[option], last = true, option
		b.places[option] = b.Token()
		if err := unmarshal(); err != nil {
			return err
		}
	}
	return nil
}

// refuse returns an error that begins with the name of an option, with the
// place where the option stands.
func (b optionBlock) refuse(err error) error {
	option, _, _ := strings.Cut(err.Error(), ":")
	place, given := b.places[option]
	if !given {
		return b.Err(err.Error()) // it is the default that is wrong here
	}
	at := caddyfile.NewDispenser([]caddyfile.Token{place})
	at.Next()
	return at.Err(err.Error())
}

// unmarshalArg reads the one argument of an option.
func unmarshalArg(d *caddyfile.Dispenser, into *string) error {
	option := d.Val()
	if !d.Args(into) || d.NextArg() {
		return d.Errf("%s: takes one argument", option)
	}
	return nil
}

// hasPlaceholder reports whether a value depends on the request.
func hasPlaceholder(value string) bool {
	_, rest, opened := strings.Cut(value, "{")
	return opened && strings.Contains(rest, "}")
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

// maxSize is the largest size that any option takes, in bytes.
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
