package llmstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
)

func init() {
	caddy.RegisterModule(new(MemoryStore))
	caddy.RegisterModule(new(RedisStore))
}

// storeModule is a module of the namespace llm_stream.stores.
type storeModule interface {
	// open returns the store. What it is about need not be reachable.
	open() (store.Store, error)
}

// MemoryStore keeps responses in the memory of this process, where no other
// replica finds them. It is the default.
type MemoryStore struct{}

// CaddyModule returns the Caddy module information.
func (*MemoryStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "llm_stream.stores.memory",
		New: func() caddy.Module { return new(MemoryStore) },
	}
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens: it has no options.
func (*MemoryStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // its name
	if d.NextArg() || d.NextBlock(0) {
		return d.Err("store: memory takes no argument and has no options")
	}
	return nil
}

// RedisStore shares responses with other replicas through Redis 7, or Valkey: one
// server, one behind sentinels, or a cluster.
type RedisStore struct {
	redis.Config
}

// CaddyModule returns the Caddy module information.
func (*RedisStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "llm_stream.stores.redis",
		New: func() caddy.Module { return new(RedisStore) },
	}
}

// Provision replaces placeholders, so that secrets need not stand in the
// configuration.
func (s *RedisStore) Provision(caddy.Context) error {
	repl := caddy.NewReplacer()
	for _, text := range []*string{&s.URL, &s.Username, &s.Password, &s.SentinelUsername, &s.SentinelPassword} {
		*text = repl.ReplaceKnown(*text, "")
	}
	return nil
}

// Validate makes sure that the configuration can work. Redis need not be there.
func (s *RedisStore) Validate() error { return s.Config.Validate() }

func (s *RedisStore) open() (store.Store, error) { return redis.Open(s.Config) }

// UnmarshalCaddyfile sets up the store from Caddyfile tokens; for the syntax see
// redis.Config.
func (s *RedisStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // its name
	if !d.AllArgs(&s.URL) {
		return d.Err("store: redis takes one argument, its url")
	}
	set := func(option string) func() error {
		return func() error {
			if err := s.Set(option, d.RemainingArgs()...); err != nil {
				return d.Errf("store: %w", err)
			}
			return nil
		}
	}
	options := make(map[string]func() error)
	for _, option := range redis.Options {
		options[option] = set(option)
	}
	return newOptionBlock(d).unmarshal(0, options)
}

// unmarshalStore sets up a store as JSON from the Caddyfile option of the app.
func unmarshalStore(d *caddyfile.Dispenser, raw *json.RawMessage) error {
	if !d.NextArg() {
		return d.Err("store: takes the name of a store")
	}
	name := d.Val()
	module, err := caddyfile.UnmarshalModule(d, storeNamespace+"."+name)
	if err != nil {
		return err
	}
	*raw = caddyconfig.JSONModuleObject(module, "module", name, nil)
	return nil
}

const storeNamespace = "llm_stream.stores"

// sharedStore is an open store, and what this process shares through it. It is
// used by configurations and by running responses, and keeps the registry.
type sharedStore struct {
	*relay.Shared
	store store.Store
}

// leaveTime is how long a process may take to leave a store.
const leaveTime = time.Second

// Destruct implements caddy.Destructor. Nothing uses the store any more.
func (s *sharedStore) Destruct() error {
	s.leave()
	err := s.store.Close()
	if released := releaseRegistry(); err == nil {
		err = released
	}
	return err
}

// leave gives up the lease of this process. That is only for the sake of others,
// which notice it in time if it fails.
func (s *sharedStore) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		caddy.Log().Named("llm_stream").Warn("leaving the store", zap.Error(err))
	}
}

// acquireStore returns the open store of a configuration, which the caller must
// release with the same key.
func acquireStore(key string, module storeModule) (*sharedStore, error) {
	v, _, err := process.stores.LoadOrNew(key, func() (caddy.Destructor, error) {
		opened, err := module.open()
		if err != nil {
			return nil, err
		}
		registry, err := acquireRegistry()
		if err != nil {
			_ = opened.Close()
			return nil, err
		}
		replica := store.Join(opened, process.storeMetrics())
		return &sharedStore{relay.NewShared(replica, registry), opened}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return v.(*sharedStore), nil
}

// provisionStore opens the store, where responses are shared.
func (a *App) provisionStore() error {
	if a.StoreRaw == nil {
		return nil
	}
	loaded, err := a.ctx.LoadModule(a, "StoreRaw")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	module, shares := loaded.(storeModule)
	if !shares {
		return nil // it is the one of this process
	}
	if err := process.storeMetrics().Register(a.ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	a.storeKey = string(caddyconfig.JSON(module, nil))
	a.store, err = acquireStore(a.storeKey, module)
	return err
}

// shared returns what the process shares with others; nil where it shares nothing.
func (a *App) shared() *relay.Shared {
	if a.store == nil {
		return nil
	}
	return a.store.Shared
}

// keep holds what a response needs that outlives the configuration: the registry,
// in which it is found, and the store.
func (a *App) keep() (release func()) {
	_, registryErr := acquireRegistry()
	storeErr := errStoreClosed
	if a.store != nil {
		_, _, storeErr = process.stores.LoadOrNew(a.storeKey, func() (caddy.Destructor, error) { return nil, errStoreClosed })
	}
	return func() {
		if storeErr == nil {
			_ = releaseStore(a.storeKey)
		}
		if registryErr == nil {
			_ = releaseRegistry()
		}
	}
}

// errStoreClosed says that nothing has used a store for a moment, so that it was
// closed.
var errStoreClosed = errors.New("store: closed")

func releaseStore(key string) error {
	_, err := process.stores.Delete(key)
	return err
}

// leaveStores tells the other replicas that this process ends.
func leaveStores() {
	process.stores.Range(func(_, v any) bool {
		v.(*sharedStore).leave()
		return true
	})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*RedisStore)(nil)
	_ caddy.Validator       = (*RedisStore)(nil)
	_ caddyfile.Unmarshaler = (*MemoryStore)(nil)
	_ caddyfile.Unmarshaler = (*RedisStore)(nil)
	_ storeModule           = (*RedisStore)(nil)
	_ caddy.Destructor      = (*sharedStore)(nil)
	_ store.Metrics         = (*observe.StoreMetrics)(nil)
)
