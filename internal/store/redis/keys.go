package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// keys names what a Store has in Redis.
type keys string // the prefix

func (k keys) meta(id string) string      { return string(k) + "{" + id + "}:m" }
func (k keys) stream(id string) string    { return string(k) + "{" + id + "}:s" }
func (k keys) compact(id string) string   { return string(k) + "{" + id + "}:c" }
func (k keys) tombstone(id string) string { return string(k) + "{" + id + "}:t" }
func (k keys) events(id string) string    { return string(k) + "{" + id + "}:e" }

func (k keys) claimsOf(digest string) string { return string(k) + "key:{" + digest + "}" }

func (k keys) channel(ch store.Channel) string {
	return string(k) + "ch:{" + digest(ch.Scope, ch.Owner, ch.Name) + "}:"
}

func (k keys) lease(replica string) string { return string(k) + "lease:" + replica }

func (k keys) replica(name string) string { return string(k) + "replica:" + name }

// topic returns the channel of Redis that stands for a topic.
func (k keys) topic(t store.Topic) string {
	switch t.Kind {
	case store.ChannelTopic:
		return k.channel(t.Channel) + "e"
	case store.ReplicaTopic:
		return k.replica(t.Name)
	default:
		return k.events(t.Name)
	}
}

// digest names something that may be long or secret. Different parts give
// different digests.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		n := len(part)
		h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) //nolint:gosec // the bytes of a length
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// whose is what a tombstone says: the scope, and the owner where the response
// had one.
func whose(a fanout.Access) string {
	if a.Owner == "" {
		return digest(a.Scope)
	}
	return digest(a.Scope) + " " + digest(a.Owner)
}

// admits reports whether a tombstone is for somebody.
func admits(tombstone string, as fanout.Access) bool {
	scope, owner, owned := strings.Cut(tombstone, " ")
	return scope == digest(as.Scope) && (!owned || owner == digest(as.Owner))
}
