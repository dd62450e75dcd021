package json_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// FuzzMembers checks that what is found does not depend on where the bytes are cut,
// and that no word is longer than it may be.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{"a":1,"b":{"a":"x","c":[{"a":2}]},"a":null}`, `{"a":"\u0061","\u0061":1}`, `{"a"`, `[1,{"a":1}]`, `{"a":tru`, `{"a":1}}{"a":2}`,
		`{"a":"` + strings.Repeat("x", 200) + `"}`, "{\"a\":\"\xff\x00\"}", strings.Repeat(`{"a":`, 300), `{:,"a"::1}`, "\ufeff{\"a\":1}",
	} {
		f.Add(text, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		whole, pieces := membersOf(t, text, len(text)), membersOf(t, text, int(cut)%9+1)
		if whole != pieces {
			t.Errorf("%q has %s, and in pieces of %d %s", text, whole, cut%9+1, pieces)
		}
	})
}

// membersOf returns what is found where the text comes in pieces.
func membersOf(t *testing.T, text string, size int) string {
	t.Helper()
	var b strings.Builder
	m := json.Members{
		Wanted: func(key string, depth int) bool {
			if depth < 1 || depth > 2 || len(key) > 128 {
				t.Errorf("key %q at the depth %d", key, depth)
			}
			return true
		},
		Found: func(key string, depth int, value string, isString bool) {
			if len(value) > 128 {
				t.Errorf("a value of %d bytes", len(value))
			}
			_, _ = fmt.Fprintf(&b, "%q %d %q %t\n", key, depth, value, isString)
		},
	}
	for rest := text; rest != ""; {
		n := min(max(size, 1), len(rest))
		m.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	return b.String()
}
