// Package observe is what operators learn of responses: a record of each one,
// and what it becomes in metrics, logs, traces and the list of those that run.
//
// The invariant: a response is counted once. Its record is ended once, by
// what brings the response to its end, before any client can see that end,
// so that the access log of a client which saw it is complete.
package observe
