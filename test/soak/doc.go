// Package soak runs a Caddy in a process of its own for as long as SOAK says, with
// clients that stall, cut, cancel and come back, with reloads, and with a backend
// that fails and stops, and checks all the while what must never be otherwise.
package soak
