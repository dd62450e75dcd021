package json_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// Members are found wherever they stand, the last one too, and nowhere else,
// however the text is cut.
func TestMembers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1,"b":{"c":true}}`:                        "a1=1 c2=true ",
		`{"b":{"c":null,"a":5},"a":"x"}`:                "c2=null a2=5 a1=x ",
		`{"a":-1.5e3}`:                                  "a1=-1.5e3 ",
		`{"a":"long ` + strings.Repeat("x", 200) + `"}`: "",
		`{"a":"esc\"aped"}`:                             "",
		`{"x":"a","y":["a",{"a":1}],"z":{"q":{"a":1}}}`: "",
		`{"a":[1],"a":{"d":1},"a" : 2 }`:                "a1=2 ",
		`["a",1]`:                                       "",
		`7`:                                             "",
	} {
		for _, size := range []int{1, 2, 3, 1000} {
			var got strings.Builder
			m := json.Members{
				Wanted: func(key string, _ int) bool { return key == "a" || key == "c" },
				Found: func(key string, depth int, value string, _ bool) {
					fmt.Fprintf(&got, "%s%d=%s ", key, depth, value)
				},
			}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				m.Write(rest[:min(size, len(rest))])
			}
			if got.String() != want {
				t.Errorf("%s in pieces of %d: %q, not %q", text, size, got.String(), want)
			}
		}
	}
}
