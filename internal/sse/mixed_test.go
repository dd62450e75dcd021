package sse_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

func newMixedParser(maxEvent int) sse.Splitter { return sse.NewMixedParser(maxEvent) }

func TestObjectsAmongEvents(t *testing.T) {
	t.Parallel()
	object := "{\n  \"error\": {\n    \"message\": \"}\\\"{\",\n    \"list\": [{}]\n  }\n}"
	for name, tt := range map[string]struct {
		stream string
		want   []event
	}{
		"after events":     {"event: a\ndata: 1\n\n" + object + "\n", []event{{name: "a", data: "1"}, {name: "", data: object}}},
		"between events":   {"data: 1\n\n" + object + "\ndata: 2\n\n", []event{{name: "", data: "1"}, {name: "", data: object}, {name: "", data: "2"}}},
		"on one line":      {`{"a":1}{"b":2}` + "data: 3\n\n", []event{{name: "", data: `{"a":1}`}, {name: "", data: `{"b":2}`}, {name: "", data: "3"}}},
		"no blank line":    {"data: 1\n" + object, []event{{name: "", data: "1"}, {name: "", data: object}}},
		"no name of it":    {"event: a\n" + object + "\ndata: 2\n\n", []event{{name: "", data: object}, {name: "", data: "2"}}},
		"first":            {"\ufeff" + object, []event{{name: "", data: object}}},
		"cut off":          {"data: 1\n\n" + object[:20], []event{{name: "", data: "1"}}},
		"cut off, open":    {"data: 1\n{", []event{{name: "", data: "1"}}},
		"in data":          {"data: {\ndata: }\n\n", []event{{name: "", data: "{\n}"}}},
		"not at the start": {" {}\nx{}\n[{}]\ndata: 1\n\n", []event{{name: "", data: "1"}}},
		"in a comment":     {":{\n\ndata: 1\n\n", []event{{name: "", data: "1"}}},
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			stream := strings.ReplaceAll(tt.stream, "\n", end)
			var want []event
			for _, ev := range tt.want {
				if strings.HasPrefix(ev.data, "{\n ") {
					ev.data = strings.ReplaceAll(ev.data, "\n", end)
				}
				want = append(want, ev)
			}
			for i := range len(stream) + 1 {
				if !matches(newMixedParser(large), want, []byte(stream[:i]), []byte(stream[i:])) {
					t.Errorf("%s, line end %q: other events when cut at %d", name, end, i)
					break
				}
			}
			got, err := split(newMixedParser(large), byteByByte(stream)...)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantEvents(t, got, want)
		}
	}
}

func TestObjectsHaveTheLimitOfEvents(t *testing.T) {
	t.Parallel()
	object := `{"a":"` + strings.Repeat("x", 100) + `"}`
	for _, limit := range []int{len(object), len(object) - 1} {
		for _, pieces := range [][]string{{object}, byteByByte(object)} {
			got, err := split(newMixedParser(limit), pieces...)
			if err != nil {
				t.Error(err)
			}
			wantEvents(t, got, []event{kept("", object, limit)})
		}
	}
}

// FuzzMixedParser has no reference to compare with, only the cuts.
func FuzzMixedParser(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut, limit uint) {
		fuzzSplit(t, newMixedParser, data, cut, limit)
	})
}
