package sse_test

import (
	"bytes"
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
		{"one event", "data: a\n\n", []event{{name: "", data: "a"}}},
		{"no space after the colon", "data:a\n\n", []event{{name: "", data: "a"}}},
		{"only the first space is dropped", "data:  a \n\n", []event{{name: "", data: " a "}}},
		{"a tab is no space", "data:\ta\n\n", []event{{name: "", data: "\ta"}}},
		{"the value may have colons", "data:a: b\n\ndata::\n\n", []event{{name: "", data: "a: b"}, {name: "", data: ":"}}},
		{"several data lines", "data: YHOO\ndata: +2\ndata: 10\n\n", []event{{name: "", data: "YHOO\n+2\n10"}}},
		{"data without a colon", "data\n\n" + "data\n" + "data\n\n", []event{{name: "", data: ""}, {name: "", data: "\n"}}},
		{"data without a value", "data:\n\n" + "data: \n\n" + "data:\n" + "data: a\n\n", []event{{name: "", data: ""}, {name: "", data: ""}, {name: "", data: "\na"}}},
		{"a name", "event: add\ndata: 73857293\n\n", []event{{name: "add", data: "73857293"}}},
		{"a name after the data", "data: a\nevent: add\n\n", []event{{name: "add", data: "a"}}},
		{"the last name counts", "event: a\nevent: b\ndata: c\n\n", []event{{name: "b", data: "c"}}},
		{"a name without a value", "event: a\nevent\ndata: b\n\n", []event{{name: "", data: "b"}}},
		{"a name is for one event", "event: a\ndata: b\n\ndata: c\n\n", []event{{name: "a", data: "b"}, {name: "", data: "c"}}},
		{"a name without data does not leak", "event: a\n\ndata: b\n\n", []event{{name: "", data: "b"}}},
		{"comments", ": OPENROUTER PROCESSING\n\n:\n\n:data: a\n\ndata: b\n: c\ndata: d\n\n", []event{{name: "", data: "b\nd"}}},
		{"id and retry", "id: 1\nretry: 10\n\nid: 2\ndata: a\nid\nretry\n\n", []event{{name: "", data: "a"}}},
		{"unknown fields", "dat: a\ndatas: b\nDATA: c\ndata : d\nevents: e\ndata: f\nx\n\n", []event{{name: "", data: "f"}}},
		{"a field after a space is unknown", " data: a\n\ndata: b\n\n", []event{{name: "", data: "b"}}},
		{"CRLF", "event: a\r\ndata: b\r\ndata: c\r\n\r\n", []event{{name: "a", data: "b\nc"}}},
		{"CR", "event: a\rdata: b\rdata: c\r\r", []event{{name: "a", data: "b\nc"}}},
		{"mixed line ends", "data: a\rdata: b\r\ndata: c\n\rdata: d\n\r\ndata: e\r\r\n", []event{{name: "", data: "a\nb\nc"}, {name: "", data: "d"}, {name: "", data: "e"}}},
		{"a byte order mark", "\ufeffdata: a\n\n", []event{{name: "", data: "a"}}},
		{"one byte order mark only", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []event{{name: "", data: "b"}}},
		{"no byte order mark inside", "data: a\n\n\ufeffdata: b\n\n", []event{{name: "", data: "a"}}},
		{"a piece of a byte order mark", "\xef\xbbdata: a\n\ndata: b\n\n", []event{{name: "", data: "b"}}},
		{"characters of two to four bytes", "data: é€😀\n\n", []event{{name: "", data: "é€😀"}}},
		{"bytes that are no UTF-8", "data: \xff\xf0\x9f\n\n", []event{{name: "", data: "\xff\xf0\x9f"}}},
		{"NUL", "data: \x00\nid: \x00\n\n", []event{{name: "", data: "\x00"}}},
	})
}

func TestParserDepartsFromStandard(t *testing.T) {
	interpret(t, []interpretation{
		{"error as a field", "error: {\"code\":500}\n\n", []event{{name: "error", data: `{"code":500}`}}},
		{"error as a field without a space", "error:{}\n\n", []event{{name: "error", data: "{}"}}},
		{"error as a field beside others", "event: a\ndata: b\nerror: c\n\n", []event{{name: "error", data: "b\nc"}}},
		{"error without a value", "error\n\nerror:\n\ndata: a\nerror: \nerror\n\n", []event{{name: "", data: "a"}}},
		{"errors is unknown", "errors: a\n\n", nil},
		{"no blank line at the end", "data: a\n\nevent: b\ndata: c\n", []event{{name: "", data: "a"}, {name: "b", data: "c"}}},
		{"no line end at the end", "data: a\n\nevent: b\ndata: c", []event{{name: "", data: "a"}, {name: "b", data: "c"}}},
		{"a field name at the end", "data: a\ndata", []event{{name: "", data: "a\n"}}},
		{"an incomplete field name at the end", "data: a\n\ndat", []event{{name: "", data: "a"}}},
		{"a name without data at the end", "data: a\n\nevent: b", []event{{name: "", data: "a"}}},
		{"a comment at the end", "data: a\n: b", []event{{name: "", data: "a"}}},
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
			wantEvents(t, referenceEvents(tt.stream, large), tt.want)
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
	over := event{reduced: true}
	tests := []struct {
		name   string
		stream string
		want   []event
	}{
		{"data that fits", "data: " + x(16) + "\n\n", []event{{data: x(16)}}},
		{"data", "data: " + x(17) + "\n\n", []event{over}},
		{"data without an end", "data: " + x(17), []event{over}},
		{"a name does not count", "event: " + x(300) + "\ndata: " + x(16) + "\n\n", []event{{name: x(256), data: x(16)}}},
		{"joined data that fit", "data: " + x(8) + "\ndata: " + x(7) + "\n\n", []event{{data: x(8) + "\n" + x(7)}}},
		{"joined data", "data: " + x(8) + "\ndata: " + x(8) + "\n\n", []event{over}},
		{"the joining newline counts", "data: " + x(16) + "\ndata\n\n", []event{over}},
		{"empty data lines", strings.Repeat("data\n", 18) + "\n", []event{over}},
		{"empty data lines that fit", strings.Repeat("data\n", 17) + "\n", []event{{data: strings.Repeat("\n", 16)}}},
		{"an error field", "error: " + x(17) + "\n\n", []event{{name: "error", reduced: true}}},
		{"an ignored line", "id: " + x(1000) + "\ndata: a\n\n", []event{{data: "a"}}},
		{"comments do not count", ": " + x(1000) + "\ndata: a\n:" + x(1000) + "\n\n", []event{{data: "a"}}},
		{"a bare line that fits", "{" + x(15) + "\ndata: a\n\n", []event{{data: "{" + x(15)}, {data: "a"}}},
		{"a bare line", "data: a\n{" + x(16) + "\n\n", []event{{data: "a"}, over}},
		{"events around it", "data: a\n\ndata: " + x(17) + "\n\ndata: c\n\n", []event{{data: "a"}, over, {data: "c"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range [][]string{{tt.stream}, byteByByte(tt.stream)} {
				got, err := split(sse.NewParser(limit), pieces...)
				if err != nil {
					t.Fatal(err)
				}
				wantEvents(t, got, tt.want)
			}
		})
	}
}

// An event that has no end is given up at last.
func TestEventWithoutAnEndIsNotReadPastForEver(t *testing.T) {
	for _, f := range framings {
		if f.name == "Frames" {
			continue // they say how long they are
		}
		s := f.fresh(1 << 10)
		s.Feed(f.event[:len(f.event)-10])
		drain(s)
		piece := []byte(strings.Repeat("x", 1<<20))
		for i := 0; s.Err() == nil; i++ {
			if i == 100 {
				t.Fatalf("%s: %d MiB were read past", f.name, i)
			}
			s.Feed(piece)
			if drain(s) > 0 {
				t.Fatalf("%s: an event", f.name)
			}
		}
		if !errors.Is(s.Err(), sse.ErrEventTooLarge) {
			t.Errorf("%s: %v", f.name, s.Err())
		}
		s.Feed([]byte("\n]\ndata: a\n\n{}\n"))
		s.Close()
		if drain(s) > 0 {
			t.Errorf("%s: an event after the error", f.name)
		}
		if _, capacity := sse.Held(s); capacity != 0 {
			t.Errorf("%s: %d bytes of memory held after the error", f.name, capacity)
		}
	}
}

// What is short in a large event is there, and what is long has its mark.
func TestLargeEventsAreReduced(t *testing.T) {
	long := strings.Repeat("A", 5000)
	body := `{"type":"x","b64":"` + long + `","n":[1,2,` + strings.Repeat("3,", 5000) + `4],"end":true}`
	want := `{"type":"x","b64":"` + "\x00" + `","n":[1,2,` + strings.Repeat("3,", 62) + `"` + "\x00" + `"],"end":true}`
	for name, f := range map[string]struct {
		fresh  func(int) sse.Splitter
		stream string
	}{
		"Parser": {func(n int) sse.Splitter { return sse.NewParser(n) }, "event: a\ndata: " + body + "\n\n"},
		"bare":   {func(n int) sse.Splitter { return sse.NewParser(n) }, body + "\n"},
		"mixed":  {func(n int) sse.Splitter { return sse.NewMixedParser(n) }, body + "\n"},
		"Lines":  {func(n int) sse.Splitter { return sse.NewLines(n) }, body + "\n"},
		"Array":  {func(n int) sse.Splitter { return sse.NewArray(n) }, "[" + body + "]"},
		"Frames": {func(n int) sse.Splitter { return sse.NewFrames(n) }, eventFrame("a", body)},
	} {
		for _, pieces := range [][]string{{f.stream}, byteByByte(f.stream)} {
			s := f.fresh(1 << 10)
			var got []string
			for _, piece := range pieces {
				s.Feed([]byte(piece))
				for ev, ok := s.Next(); ok; ev, ok = s.Next() {
					if !ev.Reduced || ev.Bare != (name == "bare") {
						t.Errorf("%s: reduced %v, bare %v", name, ev.Reduced, ev.Bare)
					}
					got = append(got, string(ev.Data))
				}
			}
			if len(got) != 1 || got[0] != want || s.Err() != nil {
				t.Errorf("%s in %d pieces: %q, %v", name, len(pieces), got, s.Err())
			}
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

// TestShortLinesAreReadPastNoFurther than a long one: what counts is what comes
// of the stream, not what is left of it.
func TestShortLinesAreReadPastNoFurther(t *testing.T) {
	p := sse.NewParser(1 << 10)
	lines := bytes.Repeat([]byte("data:\n"), 64<<10)
	read := 0
	for p.Err() == nil && read < 20<<20 {
		p.Feed(lines)
		drain(p)
		read += len(lines)
	}
	if p.Err() == nil {
		t.Errorf("after %d bytes of an event it is still read past", read)
	}
}
