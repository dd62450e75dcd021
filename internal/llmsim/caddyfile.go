package llmsim

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llmsim", parseCaddyfile)
	httpcaddyfile.RegisterDirectiveOrder("llmsim", httpcaddyfile.Before, "respond")
}

// parseCaddyfile sets up the handler from the directive.
func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llmsim [<matcher>] {
//		tokens    <count>
//		interval  <duration>
//		ttft      <duration>
//		reasoning <count>
//		fault     die|end|hang|error|error-done|crash|malformed [<token>]
//		fault     status [<code>]
//		fault     no-done|slow-headers|none
//		server    ollama|none
//	}
//
// Every option may be left out, and given once.
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
		case "tokens":
			h.Tokens = new(int)
			err = unmarshalCount(d, h.Tokens)
		case "interval":
			h.Interval, err = unmarshalDuration(d)
		case "ttft":
			h.TTFT, err = unmarshalDuration(d)
		case "reasoning":
			err = unmarshalCount(d, &h.Reasoning)
		case "fault":
			err = h.unmarshalFault(d)
		case "server":
			err = h.unmarshalServer(d)
		default:
			err = d.Errf("unknown option %q", option)
		}
		if err != nil {
			return err
		}
		if err := h.options().Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// unmarshalFault reads the kind of a fault, and the number that some kinds have.
func (h *Handler) unmarshalFault(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	fault, err := ParseFault(d.Val())
	if err != nil {
		return d.WrapErr(err)
	}
	h.Fault = fault
	var number *int
	switch {
	case fault == FaultStatus:
		number = &h.Status
	case fault.stops() || fault == FaultMalformed:
		number = &h.FaultAt
	}
	if number == nil || d.CountRemainingArgs() == 0 {
		if d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
	return unmarshalCount(d, number)
}

// unmarshalServer reads the only argument of the option server.
func (h *Handler) unmarshalServer(d *caddyfile.Dispenser) error {
	var name string
	if !d.AllArgs(&name) {
		return d.ArgErr()
	}
	server, err := ParseServer(name)
	if err != nil {
		return d.WrapErr(err)
	}
	h.Server = server
	return nil
}

// unmarshalCount reads the only argument of an option, a whole number.
func unmarshalCount(d *caddyfile.Dispenser, dst *int) error {
	option := d.Val()
	var arg string
	if !d.AllArgs(&arg) {
		return d.ArgErr()
	}
	n, err := strconv.Atoi(arg)
	if err != nil {
		return d.Errf("%s: %q is no whole number", option, arg)
	}
	*dst = n
	return nil
}

// unmarshalDuration reads the only argument of an option, a duration.
func unmarshalDuration(d *caddyfile.Dispenser) (*caddy.Duration, error) {
	option := d.Val()
	var arg string
	if !d.AllArgs(&arg) {
		return nil, d.ArgErr()
	}
	duration, err := caddy.ParseDuration(arg)
	if err != nil {
		return nil, d.Errf("%s: %q is no duration: %w", option, arg, err)
	}
	return new(caddy.Duration(duration)), nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)
