// Package event is the vocabulary that all other packages share: what a model
// puts out, how a response ends, and every word of the contract with clients and
// operators.
//
// The invariant: an event is no wire format. Nothing here depends on a provider,
// a dialect or HTTP beyond the numbers of its statuses.
package event
