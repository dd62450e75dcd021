package sse_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

const large = 1 << 20

// interpretation is a stream with the events that it must yield.
type interpretation struct {
	name   string
	stream string
	want   []event
}

// TestParserFollowsStandard has the rules of section 9.2.6 of the standard, its
// own examples among them.
func TestParserFollowsStandard(t *testing.T) {
	interpret(t, []interpretation{
		{"nothing", "", nil},
		{"blank lines only", "\n\r\n\r\r\n", nil},
		{"one event", "data: a\n\n", []event{{"", "a"}}},
		{"no space after the colon", "data:a\n\n", []event{{"", "a"}}},
		{"only the first space is dropped", "data:  a \n\n", []event{{"", " a "}}},
		{"a tab is no space", "data:\ta\n\n", []event{{"", "\ta"}}},
		{"the value may have colons", "data:a: b\n\ndata::\n\n", []event{{"", "a: b"}, {"", ":"}}},
		{"several data lines", "data: YHOO\ndata: +2\ndata: 10\n\n", []event{{"", "YHOO\n+2\n10"}}},
		{"data without a colon", "data\n\n" + "data\n" + "data\n\n", []event{{"", ""}, {"", "\n"}}},
		{"data without a value", "data:\n\n" + "data: \n\n" + "data:\n" + "data: a\n\n", []event{{"", ""}, {"", ""}, {"", "\na"}}},
		{"a name", "event: add\ndata: 73857293\n\n", []event{{"add", "73857293"}}},
		{"a name after the data", "data: a\nevent: add\n\n", []event{{"add", "a"}}},
		{"the last name counts", "event: a\nevent: b\ndata: c\n\n", []event{{"b", "c"}}},
		{"a name without a value", "event: a\nevent\ndata: b\n\n", []event{{"", "b"}}},
		{"a name is for one event", "event: a\ndata: b\n\ndata: c\n\n", []event{{"a", "b"}, {"", "c"}}},
		{"a name without data does not leak", "event: a\n\ndata: b\n\n", []event{{"", "b"}}},
		{"comments", ": OPENROUTER PROCESSING\n\n:\n\n:data: a\n\ndata: b\n: c\ndata: d\n\n", []event{{"", "b\nd"}}},
		{"id and retry", "id: 1\nretry: 10\n\nid: 2\ndata: a\nid\nretry\n\n", []event{{"", "a"}}},
		{"unknown fields", "dat: a\ndatas: b\nDATA: c\ndata : d\nevents: e\ndata: f\nx\n\n", []event{{"", "f"}}},
		{"a field after a space is unknown", " data: a\n\ndata: b\n\n", []event{{"", "b"}}},
		{"CRLF", "event: a\r\ndata: b\r\ndata: c\r\n\r\n", []event{{"a", "b\nc"}}},
		{"CR", "event: a\rdata: b\rdata: c\r\r", []event{{"a", "b\nc"}}},
		{"mixed line ends", "data: a\rdata: b\r\ndata: c\n\rdata: d\n\r\ndata: e\r\r\n", []event{{"", "a\nb\nc"}, {"", "d"}, {"", "e"}}},
		{"a byte order mark", "\ufeffdata: a\n\n", []event{{"", "a"}}},
		{"one byte order mark only", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []event{{"", "b"}}},
		{"no byte order mark inside", "data: a\n\n\ufeffdata: b\n\n", []event{{"", "a"}}},
		{"a piece of a byte order mark", "\xef\xbbdata: a\n\ndata: b\n\n", []event{{"", "b"}}},
		{"characters of two to four bytes", "data: é€😀\n\n", []event{{"", "é€😀"}}},
		{"bytes that are no UTF-8", "data: \xff\xf0\x9f\n\n", []event{{"", "\xff\xf0\x9f"}}},
		{"NUL", "data: \x00\nid: \x00\n\n", []event{{"", "\x00"}}},
	})
}

func TestParserDepartsFromStandard(t *testing.T) {
	interpret(t, []interpretation{
		{"error as a field", "error: {\"code\":500}\n\n", []event{{"error", `{"code":500}`}}},
		{"error as a field without a space", "error:{}\n\n", []event{{"error", "{}"}}},
		{"error as a field beside others", "event: a\ndata: b\nerror: c\n\n", []event{{"error", "b\nc"}}},
		{"error without a value", "error\n\nerror:\n\ndata: a\nerror: \nerror\n\n", []event{{"", "a"}}},
		{"errors is unknown", "errors: a\n\n", nil},
		{"no blank line at the end", "data: a\n\nevent: b\ndata: c\n", []event{{"", "a"}, {"b", "c"}}},
		{"no line end at the end", "data: a\n\nevent: b\ndata: c", []event{{"", "a"}, {"b", "c"}}},
		{"a field name at the end", "data: a\ndata", []event{{"", "a\n"}}},
		{"an incomplete field name at the end", "data: a\n\ndat", []event{{"", "a"}}},
		{"a name without data at the end", "data: a\n\nevent: b", []event{{"", "a"}}},
		{"a comment at the end", "data: a\n: b", []event{{"", "a"}}},
		{"a piece of a byte order mark at the end", "\xef\xbb", nil},
	})
}

func interpret(t *testing.T, tests []interpretation) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := split(sse.NewParser(large), tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, got, tt.want)
			reference, err := referenceEvents(tt.stream, large)
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, reference, tt.want)
			everySplit(t, func() sse.Splitter { return sse.NewParser(large) }, tt.stream, tt.want)
		})
	}
}

// everySplit cuts a short stream in two and in three at every offset, and
// into bytes.
func everySplit(t *testing.T, fresh func() sse.Splitter, stream string, want []event) {
	t.Helper()
	for i := range len(stream) + 1 {
		for j := i; j <= len(stream); j++ {
			got, err := split(fresh(), stream[:i], stream[i:j], stream[j:])
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, got, want)
		}
	}
	got, err := split(fresh(), byteByByte(stream)...)
	if err != nil {
		t.Fatal(err)
	}
	wantEvents(t, got, want)
}

// promptly feeds the stream byte by byte and compares how many events were out
// after each byte.
func promptly(t *testing.T, s sse.Splitter, stream string, want []int) {
	t.Helper()
	events := 0
	for i := range len(stream) {
		s.Feed([]byte{stream[i]})
		for _, ok := s.Next(); ok; _, ok = s.Next() {
			events++
		}
		if events != want[i] {
			t.Fatalf("%d events after %q, want %d", events, stream[:i+1], want[i])
		}
	}
}

func TestParserReturnsEventWithItsLastByte(t *testing.T) {
	tests := []struct {
		stream string
		want   []int
	}{
		{"data\n\n" + "data\n\n", []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2}},
		{"data\r\r" + "data\r\r", []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2}},
		{"data\r\n\r\n" + "data\n\r", []int{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2}},
	}
	for _, tt := range tests {
		promptly(t, sse.NewParser(large), tt.stream, tt.want)
	}
}

func TestParserLimit(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	const limit = 16
	tests := []struct {
		name   string
		stream string
		want   []event
		fits   bool
	}{
		{"data that fits", "data: " + x(16) + "\n\n", []event{{"", x(16)}}, true},
		{"data", "data: " + x(17) + "\n\n", nil, false},
		{"data without an end", "data: " + x(17), nil, false},
		{"name and data that fit", "event: " + x(6) + "\ndata: " + x(10) + "\n\n", []event{{x(6), x(10)}}, true},
		{"name and data", "event: " + x(6) + "\ndata: " + x(11) + "\n\n", nil, false},
		{"data and name", "data: " + x(11) + "\nevent: " + x(6) + "\n\n", nil, false},
		{"a name that is replaced does not count", "event: " + x(16) + "\nevent: a\ndata: " + x(15) + "\n\n", []event{{"a", x(15)}}, true},
		{"name alone", "event: " + x(17) + "\n\n", nil, false},
		{"joined data that fit", "data: " + x(8) + "\ndata: " + x(7) + "\n\n", []event{{"", x(8) + "\n" + x(7)}}, true},
		{"joined data", "data: " + x(8) + "\ndata: " + x(8) + "\n\n", nil, false},
		{"the joining newline counts", "data: " + x(16) + "\ndata\n\n", nil, false},
		{"the joining newline counts at the end", "data: " + x(16) + "\ndata", nil, false},
		{"empty data lines", strings.Repeat("data\n", 18) + "\n", nil, false},
		{"empty data lines that fit", strings.Repeat("data\n", 17) + "\n", []event{{"", strings.Repeat("\n", 16)}}, true},
		{"an error field that fits", "error: " + x(11) + "\n\n", []event{{"error", x(11)}}, true},
		{"an error field", "error: " + x(12) + "\n\n", nil, false},
		{"an ignored line that fits", "id: " + x(12) + "\ndata: a\n\n", []event{{"", "a"}}, true},
		{"an ignored line", "id: " + x(13) + "\ndata: a\n\n", nil, false},
		{"a line without a colon", x(17), nil, false},
		{"many ignored lines", strings.Repeat("id: 1\n", 100) + "data: a\n\n", []event{{"", "a"}}, true},
		{"comments do not count", ": " + x(1000) + "\ndata: a\n:" + x(1000) + "\n\n", []event{{"", "a"}}, true},
		{"events before it", "data: a\n\ndata: b\n\ndata: " + x(17) + "\n\ndata: c\n\n", []event{{"", "a"}, {"", "b"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				p := sse.NewParser(limit)
				got, err := split(p, pieces...)
				wantLimit(t, p, got, tt.want, err, tt.fits)
			}
		})
	}
}

// wantLimit compares the outcome of a limit's test. After the error nothing
// comes any more and nothing is held.
func wantLimit(t *testing.T, s sse.Splitter, got, want []event, err error, fits bool) {
	t.Helper()
	wantEvents(t, got, want)
	if fits {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, sse.ErrEventTooLarge) {
		t.Fatalf("error %v, want ErrEventTooLarge", err)
	}
	s.Feed([]byte("\n]\ndata: a\n\n{}\n"))
	if ev, ok := s.Next(); ok {
		t.Fatalf("event %q after the error", ev.Data)
	}
	s.Close()
	if ev, ok := s.Next(); ok {
		t.Fatalf("event %q after the error and Close", ev.Data)
	}
	if err := s.Err(); !errors.Is(err, sse.ErrEventTooLarge) {
		t.Fatalf("the error became %v", err)
	}
	if _, capacity := sse.Held(s); capacity != 0 {
		t.Fatalf("%d bytes of memory held after the error", capacity)
	}
}

func TestParserReportsLimitBeforeTheEventEnds(t *testing.T) {
	p := sse.NewParser(4)
	p.Feed([]byte("data: 1234"))
	if _, ok := p.Next(); ok || p.Err() != nil {
		t.Fatalf("event %v, error %v with as much as the limit", ok, p.Err())
	}
	p.Feed([]byte("5"))
	if _, ok := p.Next(); ok || !errors.Is(p.Err(), sse.ErrEventTooLarge) {
		t.Fatalf("event %v, error %v with one byte more", ok, p.Err())
	}
}

func TestParserLimitOfShortLines(t *testing.T) {
	for _, stream := range []string{"abc\n", "abc", "id:\n"} {
		if _, err := split(sse.NewParser(2), stream); !errors.Is(err, sse.ErrEventTooLarge) {
			t.Errorf("%q: error %v, want ErrEventTooLarge", stream, err)
		}
		if _, err := split(sse.NewParser(3), stream); err != nil {
			t.Errorf("%q: %v", stream, err)
		}
	}
}

func TestParserCloseIsFinal(t *testing.T) {
	p := sse.NewParser(large)
	p.Feed([]byte("data: a"))
	p.Close()
	if ev, ok := p.Next(); !ok || string(ev.Data) != "a" {
		t.Fatalf("got %q, %v, want the open event", ev.Data, ok)
	}
	p.Close()
	p.Feed([]byte("data: b\n\n"))
	if ev, ok := p.Next(); ok {
		t.Fatalf("event %q after the end", ev.Data)
	}
}
