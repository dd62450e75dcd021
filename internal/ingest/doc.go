// Package ingest is the http.ResponseWriter that the next handler writes the
// backend's response into. It finds out whether the response is a token stream,
// decodes it and leaves its events in a log; everything else passes to the
// client as it came.
//
// The invariant: a response that is no token stream passes untouched, and one
// that is ends with exactly one terminal event, whatever the backend, the next
// handler or the clients do. A Producer takes bytes and returns: it knows no
// client but through its Outlet, and the log is between it and those that read.
package ingest
