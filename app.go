package llmstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

func init() {
	caddy.RegisterModule(new(App))
	httpcaddyfile.RegisterGlobalOption("llm_stream", parseGlobal)
	process.metrics = sync.OnceValues(func() (plain, withModel *observe.Metrics) {
		return observe.NewMetrics(queuedRequests)
	})
}

// process is the state of this process that outlives configurations.
var process = struct {
	registries *caddy.UsagePool // one registry, by registryKey
	limiters   *caddy.UsagePool // by the key of a limit
	stores     *caddy.UsagePool // by their configuration
	metrics    func() (plain, withModel *observe.Metrics)
	board      *observe.Board
	clients    atomic.Int64 // open client requests of all sites
	drainers   drainers

	storeMetrics    func() *observe.StoreMetrics
	upstreamMetrics func() *observe.UpstreamMetrics
}{
	registries:   caddy.NewUsagePool(),
	limiters:     caddy.NewUsagePool(),
	stores:       caddy.NewUsagePool(),
	board:        observe.NewBoard(),
	drainers:     drainers{set: make(map[*drainer]struct{})},
	storeMetrics: sync.OnceValue(observe.NewStoreMetrics),

	upstreamMetrics: sync.OnceValue(observe.NewUpstreamMetrics),
}

const registryKey = "responses"

// acquireRegistry returns the registry of the responses of this process, which
// the caller must release. It lives as long as a configuration or a running
// response uses it.
func acquireRegistry() (*fanout.Registry, error) {
	v, _, err := process.registries.LoadOrNew(registryKey, func() (caddy.Destructor, error) {
		return fanout.NewRegistry(), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*fanout.Registry), nil
}

func releaseRegistry() error {
	_, err := process.registries.Delete(registryKey)
	return err
}

// App holds the settings that all llm_stream handlers of a process share.
type App struct {
	// Where responses are kept, so that other replicas find them: `memory` of
	// this process, where they do not, or `redis`. Default: memory.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=llm_stream.stores inline_key=module"`

	// How many client requests may be open at the same time, on all sites
	// together: those that generate, wait for a place, resume, follow or read a
	// snapshot. One more is answered with 503. Default: no bound.
	MaxClients int `json:"max_clients,omitempty"`

	// How much memory all responses and the request bodies that are read whole
	// may take together, in bytes. Beyond it the responses that ended first
	// expire, until half of it is free. Where that is not enough, the largest
	// running response ends with the error response_too_large, and a request
	// whose body has no room is answered with 503. Default: no bound.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Gives the metrics of responses a label for the model. Off by default:
	// the backend decides how many values it has.
	ModelLabel bool `json:"model_label,omitempty"`

	ctx      caddy.Context
	metrics  *observe.Metrics
	registry *fanout.Registry
	store    *sharedStore  // nil where responses are not shared
	storeKey string        // in process.stores
	grace    time.Duration // Caddy's grace_period; 0 where there is none

	places     map[string]int // how many limits without a name are alike
	admissions map[string]*admission
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "llm_stream",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision sets up the app.
func (a *App) Provision(ctx caddy.Context) (err error) {
	a.ctx = ctx
	a.places = make(map[string]int)
	a.admissions = make(map[string]*admission)
	plain, withModel := process.metrics()
	a.metrics = plain
	if a.ModelLabel {
		a.metrics = withModel
	}
	if err := a.metrics.Register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if a.registry, err = acquireRegistry(); err != nil {
		return err
	}
	return a.provisionStore()
}

// Validate makes sure that the settings can work.
func (a *App) Validate() error {
	if a.MaxClients < 0 {
		return fmt.Errorf("max_clients: must be at least 1, not %d", a.MaxClients)
	}
	if a.MaxMemory < 0 {
		return fmt.Errorf("max_memory: must be at least 1 byte, not %d", a.MaxMemory)
	}
	return nil
}

// Start applies the settings to what outlives a configuration.
func (a *App) Start() error {
	a.registry.Limit(int(a.MaxMemory))
	if app, err := a.ctx.AppIfConfigured("http"); err == nil {
		if http, ok := app.(*caddyhttp.App); ok {
			a.grace = time.Duration(http.GracePeriod)
		}
	}
	for _, admission := range a.admissions {
		admission.limiter.Configure(admission.config)
	}
	return nil
}

// place returns the key of a limit without a name: its place among equals.
func (a *App) place(key string) string {
	a.places[key]++
	return key + " " + strconv.Itoa(a.places[key])
}

// register makes sure that one limit has one configuration.
func (a *App) register(adm *admission) error {
	if other := a.admissions[adm.key]; other != nil && other.config != adm.config {
		return fmt.Errorf("max_streams: two different limits have the same %s", adm.key)
	}
	a.admissions[adm.key] = adm
	return nil
}

// Stop does nothing: the next configuration brings its own settings.
func (a *App) Stop() error { return nil }

// Cleanup releases what the app shares with others.
func (a *App) Cleanup() error {
	if a.registry == nil {
		return nil
	}
	err := releaseRegistry()
	if a.store != nil {
		err = errors.Join(err, releaseStore(a.storeKey))
	}
	return err
}

// enter counts a client in, and out again with leave. It reports false, and
// counts nothing, where there are too many.
func (a *App) enter() bool {
	if n := process.clients.Add(1); a.MaxClients > 0 && n > int64(a.MaxClients) {
		process.clients.Add(-1)
		return false
	}
	a.metrics.ClientIn()
	return true
}

func (a *App) leave() {
	process.clients.Add(-1)
	a.metrics.ClientOut()
}

// parseGlobal sets up the app from the global option. Syntax:
//
//	llm_stream {
//		store       memory | redis <url> { … }
//		max_clients <n>
//		max_memory  <size>
//		model_label
//	}
func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // so that the error tells where
		return nil, d.Err("llm_stream is given twice")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "llm_stream", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens; for the syntax see
// parseGlobal.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // option name
	if err := noArgs(d); err != nil {
		return err
	}
	return newOptionBlock(d).unmarshal(0, map[string]func() error{
		"store":       func() error { return unmarshalStore(d, &a.StoreRaw) },
		"max_clients": func() error { return unmarshalCount(d, &a.MaxClients) },
		"max_memory":  func() error { return unmarshalSize(d, &a.MaxMemory) },
		"model_label": func() error {
			a.ModelLabel = true
			if d.NextArg() {
				return d.ArgErr()
			}
			return nil
		},
	})
}

// Interface guards
var (
	_ caddy.App             = (*App)(nil)
	_ caddy.Provisioner     = (*App)(nil)
	_ caddy.Validator       = (*App)(nil)
	_ caddy.CleanerUpper    = (*App)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)
)
