package sse_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

func TestArraySplitsStream(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		want   []event
		ended  bool
	}{
		{"nothing", "", nil, false},
		{"an empty array", " [ ] ", nil, true},
		{"objects", `[{"a":1},{"b":[2,{}]}]`, []event{{name: "", data: `{"a":1}`}, {name: "", data: `{"b":[2,{}]}`}}, true},
		{"as Gemini writes it", "[{\n  \"a\": 1\n}\n,\r\n{\n  \"b\": 2\n}\n]\n", []event{{name: "", data: "{\n  \"a\": 1\n}"}, {name: "", data: "{\n  \"b\": 2\n}"}}, true},
		{"brackets in strings", `[{"a":"]}[{,"},{"b":"}"}]`, []event{{name: "", data: `{"a":"]}[{,"}`}, {name: "", data: `{"b":"}"}`}}, true},
		{"escapes in strings", `[{"a":"\"}\\"},{"\\\"":"\\\\"},"\u0022]"]`, []event{{name: "", data: `{"a":"\"}\\"}`}, {name: "", data: `{"\\\"":"\\\\"}`}, {name: "", data: `"\u0022]"`}}, true},
		{"arrays", `[[],[[1],"]"]]`, []event{{name: "", data: `[]`}, {name: "", data: `[[1],"]"]`}}, true},
		{"strings", `["","a,b"]`, []event{{name: "", data: `""`}, {name: "", data: `"a,b"`}}, true},
		{"numbers and literals", "[1,-2e3 ,true\n,null]", []event{{name: "", data: "1"}, {name: "", data: "-2e3"}, {name: "", data: "true"}, {name: "", data: "null"}}, true},
		{"nothing after the end", `[1] [2] {"a":3}`, []event{{name: "", data: "1"}}, true},
		{"missing commas", `[{}{} {}]`, []event{{name: "", data: "{}"}, {name: "", data: "{}"}, {name: "", data: "{}"}}, true},
		{"a bare object", "{\n \"error\": {\"code\": 429}\n}\n", []event{{name: "", data: "{\n \"error\": {\"code\": 429}\n}"}}, false},
		{"bare objects and an array", `{"a":1}[{"b":2}]`, []event{{name: "", data: `{"a":1}`}, {name: "", data: `{"b":2}`}}, true},
		{"no JSON", "<p>\n", []event{{name: "", data: "<p>"}}, false},
		{"an end without a start", "]1", nil, true},
		{"a byte order mark", "\ufeff[1]", []event{{name: "", data: "1"}}, true},
		{"a piece of a byte order mark", "\xef\xbb[1]", []event{{name: "", data: "\xef\xbb[1"}}, true},
		{"a piece of a byte order mark at the end", "\xef", []event{{name: "", data: "\xef"}}, false},
		{"cut between elements", `[{"a":1},`, []event{{name: "", data: `{"a":1}`}}, false},
		{"cut in an element", `[{"a":1},{"b":2`, []event{{name: "", data: `{"a":1}`}}, false},
		{"cut in a string", `[{"a":1},"b`, []event{{name: "", data: `{"a":1}`}}, false},
		{"cut after a number", `[1,2`, []event{{name: "", data: "1"}, {name: "", data: "2"}}, false},
		{"characters of two to four bytes", `["é€😀"]`, []event{{name: "", data: `"é€😀"`}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := sse.NewArray(large)
			got, err := split(a, tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, got, tt.want)
			if a.Ended() != tt.ended {
				t.Fatalf("Ended %v, want %v", a.Ended(), tt.ended)
			}
			everySplit(t, func() sse.Splitter { return sse.NewArray(large) }, tt.stream, tt.want)
		})
	}
}

func TestArrayReturnsEventWithItsLastByte(t *testing.T) {
	promptly(t, sse.NewArray(large), `[{},"", 1,[[]]]`, []int{0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4})
}

func TestArrayEndsWithItsBracket(t *testing.T) {
	a := sse.NewArray(large)
	a.Feed([]byte(`[{}`))
	if _, ok := a.Next(); !ok {
		t.Fatal("no event")
	}
	if _, ok := a.Next(); ok || a.Ended() {
		t.Fatalf("event %v, Ended %v before the closing bracket", ok, a.Ended())
	}
	a.Feed([]byte("\n]\n"))
	if _, ok := a.Next(); ok || !a.Ended() {
		t.Fatalf("event %v, Ended %v after the closing bracket", ok, a.Ended())
	}
}

func TestArrayLimit(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	over := event{reduced: true}
	tests := []struct {
		name   string
		stream string
		want   []event
	}{
		{"as much as the limit", `["` + x(14) + `",{"":"` + x(9) + `"},` + x(16) + `]`, []event{{data: `"` + x(14) + `"`}, {data: `{"":"` + x(9) + `"}`}, {data: x(16)}}},
		{"white space between elements", "[1," + strings.Repeat(" ", 1000) + "2]", []event{{data: "1"}, {data: "2"}}},
		{"a string", `["` + x(15) + `"]`, []event{over}},
		{"an object", `[{"":"` + x(10) + `"}]`, []event{over}},
		{"a number", `[` + x(17) + `]`, []event{over}},
		{"without an end", `[{"` + x(17), nil},
		{"events around it", `[{},"` + x(15) + `",{}]`, []event{{data: "{}"}, over, {data: "{}"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				got, err := split(sse.NewArray(16), pieces...)
				if err != nil {
					t.Fatal(err)
				}
				wantEvents(t, got, tt.want)
			}
		})
	}
}
