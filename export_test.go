package llmstream

import (
	"errors"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// Held is what this process holds for responses and clients.
type Held struct {
	Running, Kept int   // responses
	Records       int   // of generations that run
	Clients       int64 // open requests
	Readers       int   // clients that read a response
	Members       int   // clients that a drain would send away
}

// Holds counts what is held at this moment.
func Holds() Held {
	s, err := acquireShared()
	if err != nil {
		panic(err)
	}
	defer func() { _ = releaseShared() }()
	h := Held{Clients: s.clients.Load(), Readers: Attached()}
	h.Running, h.Kept = s.registry.Len()
	running.Lock()
	h.Records = len(running.records)
	running.Unlock()
	everyone.mu.Lock()
	defer everyone.mu.Unlock()
	for dr := range everyone.set {
		h.Members += dr.Len()
	}
	return h
}

// Remembers reports whether a response of a scope is known, if only as one that
// has expired.
func Remembers(scope, id string) bool {
	s, err := acquireShared()
	if err != nil {
		panic(err)
	}
	defer func() { _ = releaseShared() }()
	_, err = s.registry.Find(id, fanout.Access{Scope: scope})
	return !errors.Is(err, fanout.ErrUnknown)
}

// Attached returns how many clients read a response at this moment.
func Attached() int {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	return len(readers.set)
}
