package llmstream

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterDirective("llm_stream", parseDirective)
	// Everything that dispatches or responds comes after: invoke is the first
	// of those, so that handle, route and reverse_proxy are all read.
	httpcaddyfile.RegisterDirectiveOrder("llm_stream", httpcaddyfile.Before, "invoke")
}

// parseDirective sets up the handler from the directive, and with resume the
// routes of its control endpoints before it.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	if handler.MaxStreams != nil && handler.MaxStreams.Name == "" && matcher != nil {
		handler.MaxStreams.Place = string(h.JSON(matcher))
	}
	if handler.Resume == nil {
		return h.NewRoute(matcher, handler), nil
	}
	if matcher != nil {
		handler.Resume.Place = string(h.JSON(matcher))
	}
	return h.NewRoute(nil, &caddyhttp.Subroute{Routes: caddyhttp.RouteList{
		moduleRoute(controlMatcher(h, handler.Resume.Prefix), "llm_stream_control", &Control{handler.Delivery}),
		moduleRoute(matcher, "llm_stream", handler),
	}}), nil
}

func moduleRoute(matcher caddy.ModuleMap, name string, handler any) caddyhttp.Route {
	route := caddyhttp.Route{
		HandlersRaw: []json.RawMessage{caddyconfig.JSONModuleObject(handler, "handler", name, nil)},
	}
	if matcher != nil {
		route.MatcherSetsRaw = caddyhttp.RawMatcherSets{matcher}
	}
	return route
}

// controlMatcher matches the control endpoints under a prefix.
func controlMatcher(h httpcaddyfile.Helper, prefix string) caddy.ModuleMap {
	prefix = strings.TrimRight(prefix, "/")
	return caddy.ModuleMap{"path": h.JSON(caddyhttp.MatchPath{
		prefix + "/streams/*", prefix + "/cancel", prefix + "/cancel/*", prefix + "/channels/*",
	})}
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_stream [<matcher>] {
//		emit        text | plain | openai | anthropic | ai-sdk | passthrough | <placeholder>
//		include     reasoning | tool_calls ...
//		max_streams [<name>] <n> | off {
//			queue <length> <duration>
//			per   <placeholder> <n>
//		}
//		timeouts {
//			first_token    <duration> | off
//			between_tokens <duration> | off
//			total          <duration> | off
//			write          <duration> | off
//			read           <duration> | off
//		}
//		heartbeat   <duration> | off
//		buffer      <events>
//		slow_client block | coalesce | drop | disconnect
//		max_event   <size>
//		resume <prefix> {
//			keep     <duration>
//			max_size <size>
//			grace    <duration>
//			owner    <placeholder> | anyone
//			channel  <placeholder>
//			scope    <placeholder>
//			max_body <size>
//		}
//		drain {
//			deadline  <duration>
//			spread    <duration>
//			retry     <duration>
//			on_reload reconnect | off
//		}
//	}
//
// Every option may be left out. Sizes are bytes or have a unit, such as 1MiB.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := noArgs(d); err != nil {
		return err
	}
	b := newOptionBlock(d)
	err := b.unmarshal(0, map[string]func() error{
		"emit":        func() error { return unmarshalArg(d, &h.Emit) },
		"include":     func() error { return h.unmarshalInclude(d) },
		"max_streams": func() error { return h.unmarshalMaxStreams(b) },
		"timeouts":    func() error { return h.unmarshalTimeouts(b) },
		"heartbeat":   func() error { return unmarshalTimeout(d, &h.Heartbeat) },
		"buffer":      func() error { return unmarshalCount(d, &h.Buffer) },
		"slow_client": func() error { return unmarshalArg(d, &h.SlowClient) },
		"max_event":   func() error { return unmarshalSize(d, &h.MaxEvent) },
		"drain":       func() error { return h.unmarshalDrain(b) },
		"resume":      func() error { return h.unmarshalResume(b) },
	})
	if err != nil {
		return err
	}
	return h.check(b)
}

// check refuses here what would be refused when the handler is set up: now the
// error can tell where it stands.
func (h *Handler) check(b optionBlock) error {
	trial := *h
	if h.Resume != nil {
		resume := *h.Resume
		trial.Resume = &resume
	}
	trial.applyDefaults()
	if err := trial.Validate(); err != nil {
		return b.refuse(err)
	}
	return nil
}

func (h *Handler) unmarshalInclude(d *caddyfile.Dispenser) error {
	h.Include = d.RemainingArgs()
	if len(h.Include) == 0 {
		return d.Err("include: takes at least one argument")
	}
	return nil
}

func (h *Handler) unmarshalMaxStreams(b optionBlock) error {
	d := b.Dispenser
	m := new(MaxStreams)
	args := d.RemainingArgs()
	if len(args) == 2 {
		m.Name, args = args[0], args[1:]
	}
	if len(args) != 1 {
		return d.Err("max_streams: takes a number or off, and before it perhaps a name")
	}
	if args[0] != "off" {
		if _, err := strconv.Atoi(args[0]); err != nil {
			return d.Errf("max_streams: takes a number or off, and before it perhaps a name, but %q is no number", args[0])
		}
		if err := parseCount(d, "max_streams", args[0], &m.Max); err != nil {
			return err
		}
	}
	h.MaxStreams = m
	err := b.unmarshal(1, map[string]func() error{
		"queue": func() error {
			var length, wait string
			if !d.Args(&length, &wait) || d.NextArg() {
				return d.Err("queue: takes a length and a duration")
			}
			if err := parseCount(d, "queue", length, &m.Queue); err != nil {
				return err
			}
			return parseDuration(d, "queue", wait, &m.Wait)
		},
		"per": func() error {
			var n string
			if !d.Args(&m.Per, &n) || d.NextArg() {
				return d.Err("per: takes a placeholder and a number")
			}
			return parseCount(d, "per", n, &m.PerMax)
		},
	})
	if *m == (MaxStreams{}) {
		h.MaxStreams = nil // off
	}
	if m.Queue > 0 && m.Max == 0 {
		return d.Err("queue: needs a number of streams to wait for")
	}
	return err
}

func (h *Handler) unmarshalTimeouts(b optionBlock) error {
	d := b.Dispenser
	if err := noArgs(d); err != nil {
		return err
	}
	h.Timeouts = new(Timeouts)
	return b.unmarshal(1, map[string]func() error{
		"first_token":    func() error { return unmarshalTimeout(d, &h.Timeouts.FirstToken) },
		"between_tokens": func() error { return unmarshalTimeout(d, &h.Timeouts.BetweenTokens) },
		"total":          func() error { return unmarshalTimeout(d, &h.Timeouts.Total) },
		"write":          func() error { return unmarshalTimeout(d, &h.Timeouts.Write) },
		"read":           func() error { return unmarshalTimeout(d, &h.Timeouts.Read) },
	})
}

func (h *Handler) unmarshalDrain(b optionBlock) error {
	d := b.Dispenser
	if err := noArgs(d); err != nil {
		return err
	}
	dr := new(Drain)
	h.Drain = dr
	return b.unmarshal(1, map[string]func() error{
		"deadline":  func() error { return unmarshalDuration(d, &dr.Deadline) },
		"spread":    func() error { return unmarshalDuration(d, &dr.Spread) },
		"retry":     func() error { return unmarshalDuration(d, &dr.Retry) },
		"on_reload": func() error { return unmarshalArg(d, &dr.OnReload) },
	})
}

func (h *Handler) unmarshalResume(b optionBlock) error {
	d := b.Dispenser
	r := new(Resume)
	if err := unmarshalArg(d, &r.Prefix); err != nil {
		return err
	}
	h.Resume = r
	return b.unmarshal(1, map[string]func() error{
		"keep":     func() error { return unmarshalDuration(d, &r.Keep) },
		"max_size": func() error { return unmarshalSize(d, &r.MaxSize) },
		"grace":    func() error { return unmarshalDuration(d, &r.Grace) },
		"owner":    func() error { return unmarshalArg(d, &r.Owner) },
		"channel":  func() error { return unmarshalArg(d, &r.Channel) },
		"scope":    func() error { return unmarshalArg(d, &r.Scope) },
		"max_body": func() error { return unmarshalSize(d, &r.MaxBody) },
	})
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
