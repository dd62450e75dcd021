// Package relay joins what produces a response with the clients that read it,
// for one request: it calls the next handler through an ingest.Producer, and
// runs a deliver.Follower for the client.
//
// There are three ways. An attached response is produced in the goroutine of
// its only client's request, and what the client has had is forgotten. A tied
// one has a goroutine of its own, because the pace of its only client must not
// hold the upstream back; it ends with that client. A detached one belongs to
// no client: it goes on when the client that asked leaves, and others follow it.
//
// The invariant: this package is the only one in which anything waits. Every
// goroutine that it starts is waited for: by the request that started it, or,
// where it is detached, by the drain group that it has joined.
package relay
