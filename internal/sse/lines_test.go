package sse_test

import (
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

func TestLinesSplitsStream(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		want   []event
	}{
		{"nothing", "", nil},
		{"LF", "{}\n[]\n", []event{{name: "", data: "{}"}, {name: "", data: "[]"}}},
		{"CRLF", "{}\r\n[]\r\n", []event{{name: "", data: "{}"}, {name: "", data: "[]"}}},
		{"a CR alone ends no line", "{}\r[]\r\r\n", []event{{name: "", data: "{}\r[]\r"}}},
		{"blank lines", "\n\r\n  \n\t\r\n{}\n\n\r\r\n[]\n\n", []event{{name: "", data: "{}"}, {name: "", data: "[]"}}},
		{"white space of a line stays", "  {} \n", []event{{name: "", data: "  {} "}}},
		{"a byte order mark", "\ufeff{}\n", []event{{name: "", data: "{}"}}},
		{"one byte order mark only", "\ufeff\ufeff{}\n", []event{{name: "", data: "\ufeff{}"}}},
		{"a piece of a byte order mark", "\xef\xbb{}\n", []event{{name: "", data: "\xef\xbb{}"}}},
		{"a piece of a byte order mark at the end", "\xef", []event{{name: "", data: "\xef"}}},
		{"no line end at the end", "{}\n[]", []event{{name: "", data: "{}"}, {name: "", data: "[]"}}},
		{"half a line end at the end", "{}\r\n[]\r", []event{{name: "", data: "{}"}, {name: "", data: "[]"}}},
		{"white space at the end", "{}\n \r", []event{{name: "", data: "{}"}}},
		{"characters of two to four bytes", "\"é€😀\"\n", []event{{name: "", data: "\"é€😀\""}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := split(sse.NewLines(large), tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, got, tt.want)
			everySplit(t, func() sse.Splitter { return sse.NewLines(large) }, tt.stream, tt.want)
		})
	}
}

func TestLinesReturnsEventWithItsLastByte(t *testing.T) {
	promptly(t, sse.NewLines(large), "1\n\n2\r\n3", []int{0, 1, 1, 1, 1, 2, 2})
}

func TestLinesLimit(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	over := event{reduced: true}
	tests := []struct {
		name   string
		stream string
		want   []event
	}{
		{"as much as the limit", x(16) + "\n" + x(16) + "\r\n" + x(16), []event{{data: x(16)}, {data: x(16)}, {data: x(16)}}},
		{"as much as the limit and half a line end", x(16) + "\r", []event{{data: x(16)}}},
		{"one byte more", x(17) + "\n", []event{over}},
		{"one byte more without an end", x(17), []event{over}},
		{"a CR that ends no line", x(16) + "\r\r\n", []event{over}},
		{"white space", strings.Repeat(" ", 17) + "\n", nil},
		{"events around it", "{}\n" + x(17) + "\n[]\n", []event{{data: "{}"}, over, {data: "[]"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				got, err := split(sse.NewLines(16), pieces...)
				if err != nil {
					t.Fatal(err)
				}
				wantEvents(t, got, tt.want)
			}
		})
	}
}
