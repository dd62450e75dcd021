// Package redis is a store.Store in Redis 7 or Valkey: one server, one with
// sentinels, or a cluster.
//
// The invariant: whatever must be true of a response at one moment is decided by
// one script in one slot, and every script may be run twice. Nothing blocks in
// Redis and nothing is asked again and again: a replica has one connection to each
// node for commands and one for messages, however many responses and followers it
// has.
//
// The keys, after the prefix:
//
//	{<id>}:m        hash     what is known of a response, see the meta* constants
//	{<id>}:s        stream   its batches; an entry's id is the index of its last event
//	{<id>}:c        string   the whole log as one batch, once it has ended
//	{<id>}:t        string   whose it was, for 24 hours after it is no longer kept
//	key:{<hash>}    hash     of an idempotency key: the id for each request
//	ch:{<hash>}:m   hash     of a channel: epoch, number of the last notice, what runs
//	ch:{<hash>}:n   stream   its notices; an entry's id is the notice's number
//	lease:<replica> string   it is there while the replica lives
//
// The messages: {<id>}:e has the batches of a response, ch:{<hash>}:e the notices
// of a channel, and replica:<replica> the ids that a replica is to cancel. In a
// cluster they go over its bus to every node, and where nothing has come for some
// seconds the log is read, since the bus may lose the last message.
package redis
