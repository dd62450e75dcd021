package provider

import "unsafe"

// view returns b as a string of the same memory, valid until b changes. It is
// the one place in this package that is unsafe; it is there because both
// gjson and json take strings, which would be a copy for every event.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // G103: gone before b is written to
}
