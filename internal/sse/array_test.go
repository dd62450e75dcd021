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
		{"objects", `[{"a":1},{"b":[2,{}]}]`, []event{{"", `{"a":1}`}, {"", `{"b":[2,{}]}`}}, true},
		{"as Gemini writes it", "[{\n  \"a\": 1\n}\n,\r\n{\n  \"b\": 2\n}\n]\n", []event{{"", "{\n  \"a\": 1\n}"}, {"", "{\n  \"b\": 2\n}"}}, true},
		{"brackets in strings", `[{"a":"]}[{,"},{"b":"}"}]`, []event{{"", `{"a":"]}[{,"}`}, {"", `{"b":"}"}`}}, true},
		{"escapes in strings", `[{"a":"\"}\\"},{"\\\"":"\\\\"},"\u0022]"]`, []event{{"", `{"a":"\"}\\"}`}, {"", `{"\\\"":"\\\\"}`}, {"", `"\u0022]"`}}, true},
		{"arrays", `[[],[[1],"]"]]`, []event{{"", `[]`}, {"", `[[1],"]"]`}}, true},
		{"strings", `["","a,b"]`, []event{{"", `""`}, {"", `"a,b"`}}, true},
		{"numbers and literals", "[1,-2e3 ,true\n,null]", []event{{"", "1"}, {"", "-2e3"}, {"", "true"}, {"", "null"}}, true},
		{"nothing after the end", `[1] [2] {"a":3}`, []event{{"", "1"}}, true},
		{"missing commas", `[{}{} {}]`, []event{{"", "{}"}, {"", "{}"}, {"", "{}"}}, true},
		{"a bare object", "{\n \"error\": {\"code\": 429}\n}\n", []event{{"", "{\n \"error\": {\"code\": 429}\n}"}}, false},
		{"bare objects and an array", `{"a":1}[{"b":2}]`, []event{{"", `{"a":1}`}, {"", `{"b":2}`}}, true},
		{"no JSON", "<p>\n", []event{{"", "<p>"}}, false},
		{"an end without a start", "]1", nil, true},
		{"a byte order mark", "\ufeff[1]", []event{{"", "1"}}, true},
		{"a piece of a byte order mark", "\xef\xbb[1]", []event{{"", "\xef\xbb[1"}}, true},
		{"a piece of a byte order mark at the end", "\xef", []event{{"", "\xef"}}, false},
		{"cut between elements", `[{"a":1},`, []event{{"", `{"a":1}`}}, false},
		{"cut in an element", `[{"a":1},{"b":2`, []event{{"", `{"a":1}`}}, false},
		{"cut in a string", `[{"a":1},"b`, []event{{"", `{"a":1}`}}, false},
		{"cut after a number", `[1,2`, []event{{"", "1"}, {"", "2"}}, false},
		{"characters of two to four bytes", `["é€😀"]`, []event{{"", `"é€😀"`}}, true},
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
	tests := []struct {
		name   string
		stream string
		want   []event
		fits   bool
	}{
		{"as much as the limit", `["` + x(14) + `",{"":"` + x(9) + `"},` + x(16) + `]`, []event{{"", `"` + x(14) + `"`}, {"", `{"":"` + x(9) + `"}`}, {"", x(16)}}, true},
		{"white space between elements", "[1," + strings.Repeat(" ", 1000) + "2]", []event{{"", "1"}, {"", "2"}}, true},
		{"a string", `["` + x(15) + `"]`, nil, false},
		{"an object", `[{"":"` + x(10) + `"}]`, nil, false},
		{"a number", `[` + x(17) + `]`, nil, false},
		{"without an end", `[{"` + x(17), nil, false},
		{"depth", strings.Repeat("[", 18), nil, false},
		{"events before it", `[{},"` + x(15) + `",{}]`, []event{{"", "{}"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				a := sse.NewArray(16)
				got, err := split(a, pieces...)
				wantLimit(t, a, got, tt.want, err, tt.fits)
			}
		})
	}
}
