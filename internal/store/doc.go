// Package store is where a response also goes when more than one replica must
// read it. A Store keeps the log of a response by its id; a Replica is one
// process's share in it: its Writers copy local logs into the store, its
// Followers copy logs of other replicas out of it.
//
// The invariant: the local log is the truth, and the store is a copy that is
// complete or says that it is not. A Writer never holds up the log it copies, and
// what the store does not have yet is not queued but read again from the log.
// What a store hands out is a prefix of that log, in order, each event once; a
// copy that will never be complete gets a terminal event that says so.
//
// The package knows no HTTP, no dialect and no database. Lock order: a Replica,
// then a Writer or a Follower, then the log that it reads or feeds.
package store
