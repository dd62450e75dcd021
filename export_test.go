package llmstream

import (
	"errors"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// Held is what this process holds for responses and clients.
type Held struct {
	Running, Kept int   // responses
	Records       int   // of generations that run
	Clients       int64 // open requests
	Readers       int   // clients that read a response
	Members       int   // clients and producers that a drain would end
}

// Holds counts what is held at this moment.
func Holds() Held {
	registry, err := acquireRegistry()
	if err != nil {
		panic(err)
	}
	defer func() { _ = releaseRegistry() }()
	h := Held{Clients: process.clients.Load(), Readers: observe.Readers(), Records: len(observe.List())}
	h.Running, h.Kept = registry.Len()
	process.drainers.mu.Lock()
	defer process.drainers.mu.Unlock()
	for dr := range process.drainers.set {
		h.Members += dr.Len()
	}
	return h
}

// Remembers reports whether a response of a scope is known, if only as one that
// has expired.
func Remembers(scope, id string) bool {
	registry, err := acquireRegistry()
	if err != nil {
		panic(err)
	}
	defer func() { _ = releaseRegistry() }()
	_, err = registry.Find(id, fanout.Access{Scope: scope})
	return !errors.Is(err, fanout.ErrUnknown)
}

// Attached returns how many clients read a response at this moment.
func Attached() int { return observe.Readers() }
