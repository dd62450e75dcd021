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
		{"LF", "{}\n[]\n", []event{{"", "{}"}, {"", "[]"}}},
		{"CRLF", "{}\r\n[]\r\n", []event{{"", "{}"}, {"", "[]"}}},
		{"a CR alone ends no line", "{}\r[]\r\r\n", []event{{"", "{}\r[]\r"}}},
		{"blank lines", "\n\r\n  \n\t\r\n{}\n\n\r\r\n[]\n\n", []event{{"", "{}"}, {"", "[]"}}},
		{"white space of a line stays", "  {} \n", []event{{"", "  {} "}}},
		{"a byte order mark", "\ufeff{}\n", []event{{"", "{}"}}},
		{"one byte order mark only", "\ufeff\ufeff{}\n", []event{{"", "\ufeff{}"}}},
		{"a piece of a byte order mark", "\xef\xbb{}\n", []event{{"", "\xef\xbb{}"}}},
		{"a piece of a byte order mark at the end", "\xef", []event{{"", "\xef"}}},
		{"no line end at the end", "{}\n[]", []event{{"", "{}"}, {"", "[]"}}},
		{"half a line end at the end", "{}\r\n[]\r", []event{{"", "{}"}, {"", "[]"}}},
		{"white space at the end", "{}\n \r", []event{{"", "{}"}}},
		{"characters of two to four bytes", "\"é€😀\"\n", []event{{"", "\"é€😀\""}}},
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
	tests := []struct {
		name   string
		stream string
		want   []event
		fits   bool
	}{
		{"as much as the limit", x(16) + "\n" + x(16) + "\r\n" + x(16), []event{{"", x(16)}, {"", x(16)}, {"", x(16)}}, true},
		{"as much as the limit and half a line end", x(16) + "\r", []event{{"", x(16)}}, true},
		{"one byte more", x(17) + "\n", nil, false},
		{"one byte more without an end", x(17), nil, false},
		{"a CR that ends no line", x(16) + "\r\r\n", nil, false},
		{"white space", strings.Repeat(" ", 17) + "\n", nil, false},
		{"events before it", "{}\n" + x(17) + "\n[]\n", []event{{"", "{}"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				l := sse.NewLines(16)
				got, err := split(l, pieces...)
				wantLimit(t, l, got, tt.want, err, tt.fits)
			}
		})
	}
}
