//go:build !race

package rig

// Race reports whether the race detector is on, with which everything takes
// several times as long.
const Race = false
