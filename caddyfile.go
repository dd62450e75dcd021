package llmstream

import (
	"github.com/dustin/go-humanize"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llm_stream", parseCaddyfile)
	// Everything that dispatches or responds comes after: invoke is the first
	// of those, so that handle, route and reverse_proxy are all read.
	httpcaddyfile.RegisterDirectiveOrder("llm_stream", httpcaddyfile.Before, "invoke")
}

// parseCaddyfile sets up the handler from the directive.
func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_stream [<matcher>] {
//		emit      text | passthrough | <placeholder>
//		include   reasoning | tool_calls ...
//		max_event <size>
//	}
//
// Every option may be left out. Sizes are bytes or have a unit, such as 1MiB.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for d.NextBlock(0) {
		option := d.Val()
		if seen[option] {
			return d.Errf("%s is given twice", option)
		}
		seen[option] = true
		var err error
		switch option {
		case "emit":
			err = unmarshalArg(d, &h.Emit)
		case "include":
			err = h.unmarshalInclude(d)
		case "max_event":
			err = unmarshalSize(d, &h.MaxEvent)
		default:
			err = d.Errf("unknown option %q", option)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) unmarshalInclude(d *caddyfile.Dispenser) error {
	h.Include = d.RemainingArgs()
	if len(h.Include) == 0 {
		return d.ArgErr()
	}
	return nil
}

// unmarshalArg reads the one argument of an option.
func unmarshalArg(d *caddyfile.Dispenser, into *string) error {
	if !d.Args(into) || d.NextArg() {
		return d.ArgErr()
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

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
