package sse_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// TestEventAllocatesNothing: not where it lies in one piece, and not where it is
// cut either once the splitter has a buffer.
func TestEventAllocatesNothing(t *testing.T) {
	for _, f := range framings {
		t.Run(f.name, func(t *testing.T) {
			for _, pieces := range [][][]byte{{f.event}, {f.event[:150], f.event[150:]}} {
				s := f.fresh(large)
				events := 0
				allocs := testing.AllocsPerRun(100, func() {
					for _, piece := range pieces {
						s.Feed(piece)
						events += drain(s)
					}
				})
				if allocs != 0 || events != 101 {
					t.Errorf("%v allocations an event in %d pieces, %d events", allocs, len(pieces), events)
				}
			}
		})
	}
}

func TestJoinedDataAllocatesNothing(t *testing.T) {
	p := sse.NewParser(large)
	piece := []byte("data: a\ndata: b\n\n")
	if allocs := testing.AllocsPerRun(100, func() { p.Feed(piece); drain(p) }); allocs != 0 {
		t.Errorf("%v allocations an event", allocs)
	}
}

// TestWholeEventLiesInPiece shows that the event is not copied: a change of
// the piece changes it.
func TestWholeEventLiesInPiece(t *testing.T) {
	for _, f := range framings {
		t.Run(f.name, func(t *testing.T) {
			s := f.fresh(large)
			piece := bytes.Clone(f.event)
			s.Feed(piece)
			ev, ok := s.Next()
			if !ok {
				t.Fatal("no event")
			}
			at := bytes.Index(piece, []byte("xxxx"))
			piece[at] = '!'
			if !bytes.Contains(ev.Data, []byte("!xxx")) {
				t.Errorf("a copy: %q", ev.Data)
			}
			if _, capacity := sse.Held(s); capacity != 0 {
				t.Errorf("%d bytes of memory held", capacity)
			}
		})
	}
}

// TestHeldBytesAreNotReadAgain feeds a large event byte by byte and overwrites
// each byte, once it is held, with one that would end or open something.
func TestHeldBytesAreNotReadAgain(t *testing.T) {
	for _, f := range framings {
		for _, poison := range []byte("\n\r\"\\}]") {
			s := f.fresh(large)
			event := bytes.Replace(f.event, []byte("xx"), bytes.Repeat([]byte("x"), 64<<10), 1)
			events, size := 0, 0
			for i := range event {
				s.Feed(event[i : i+1])
				ev, ok := s.Next()
				if ok {
					events++
					size = len(ev.Name) + len(ev.Data)
				}
				drain(s)
				sse.Poison(s, poison)
			}
			if events != 1 || size < 64<<10 {
				t.Errorf("%s: %d events, %d bytes with %q in place of what is held", f.name, events, size, poison)
			}
		}
	}
}

// TestHeldBytesAreAllocatedLinearly counts what a large event allocates that
// comes byte by byte: the doubling of a buffer is less than tenfold.
func TestHeldBytesAreAllocatedLinearly(t *testing.T) {
	for _, f := range framings {
		s := f.fresh(large + 1000)
		event := bytes.Replace(f.event, []byte("xx"), bytes.Repeat([]byte("x"), large), 1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range event {
			s.Feed(event[i : i+1])
			drain(s)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 10*large {
			t.Errorf("%s: %d bytes allocated for an event of %d", f.name, n, len(event))
		}
	}
}

// TestTimeIsLinear compares the time for 8 KiB with that for 16 times as
// much, in one piece and byte by byte, for the streams that would be read
// again and again if searches went past the end of a line or a string. What is
// quadratic takes 256 times as long.
func TestTimeIsLinear(t *testing.T) {
	const size, factor = 8 << 10, 16
	parser, lines, array := framings[0].fresh, framings[2].fresh, framings[3].fresh
	tests := []struct {
		name  string
		fresh func(int) sse.Splitter
		unit  string // repeated
		start string
	}{
		{"one line", parser, "x", "data: "},
		{"lines with CR", parser, "data\r\r", ""},
		{"lines with LF", parser, "data\n\n", ""},
		{"blank lines", parser, "\n", ""},
		{"data lines", parser, "data\n", ""},
		{"names", parser, "event:x\n", "data\n"},
		{"one comment", parser, "x", ":"},
		{"one line of NDJSON", lines, "x", ""},
		{"a line of white space", lines, " ", ""},
		{"short lines", lines, "1\n", ""},
		{"carriage returns", lines, "\r", ""},
		{"one string", array, "x", `["`},
		{"escapes", array, `\\`, `["`},
		{"escaped quotes", array, `\"`, `["`},
		{"short strings", array, `"",`, `[`},
		{"depth", array, `[`, ``},
		{"numbers", array, `1,`, `[`},
	}
	elapsed := func(fresh func(int) sse.Splitter, stream []byte, piece int) time.Duration {
		best := time.Duration(1 << 62)
		for range 3 {
			s := fresh(large * 2)
			start := time.Now()
			for i := 0; i < len(stream); i += piece {
				s.Feed(stream[i:min(i+piece, len(stream))])
				drain(s)
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	for _, tt := range tests {
		stream := []byte(tt.start + strings.Repeat(tt.unit, size*factor/len(tt.unit)))
		for _, piece := range []int{1, len(stream)} {
			short := elapsed(tt.fresh, stream[:size], min(piece, size)) + 50*time.Microsecond
			long := elapsed(tt.fresh, stream, piece)
			if long > short*factor*6 {
				t.Errorf("%s in pieces of %d: %v for %d bytes, %v for %d", tt.name, piece, short, size, long, len(stream))
			}
		}
	}
}

// TestBuffersAreReleased: a stream that was busy and is silent now keeps
// little, whatever it has seen.
func TestBuffersAreReleased(t *testing.T) {
	for _, f := range framings {
		s := f.fresh(large)
		event := bytes.Replace(f.event, []byte("xx"), bytes.Repeat([]byte("x"), large/2), 1)
		half := len(event) / 2
		s.Feed(event[:half])
		drain(s)
		if size, capacity := sse.Held(s); size > half || size < half-100 || capacity > 2*half {
			t.Errorf("%s: %d bytes held in %d, fed %d", f.name, size, capacity, half)
		}
		s.Feed(event[half:])
		if n := drain(s); n != 1 {
			t.Errorf("%s: %d events", f.name, n)
		}
		if size, capacity := sse.Held(s); size != 0 || capacity > 8<<10 {
			t.Errorf("%s: %d bytes held in %d after the event", f.name, size, capacity)
		}
	}
}

func TestDroppedLinesAreNotHeld(t *testing.T) {
	for _, line := range []string{": ", "id: ", "unknown: ", "unknown"} {
		p := sse.NewParser(large)
		for range 1000 {
			p.Feed([]byte(line))
			line = strings.Repeat("x", 1000)
			drain(p)
		}
		if size, capacity := sse.Held(p); size != 0 || capacity != 0 {
			t.Errorf("%d bytes held in %d", size, capacity)
		}
	}
}

// TestEventIsValidUntilNextCall: a large event that comes out of a buffer which
// is let go at that moment must stay whole until the next call.
func TestEventIsValidUntilNextCall(t *testing.T) {
	for _, f := range framings {
		for _, size := range []int{16, large / 2} {
			s := f.fresh(large)
			event := bytes.Replace(f.event, []byte("xx"), bytes.Repeat([]byte("y"), size), 1)
			s.Feed(event[:len(event)/2])
			drain(s)
			s.Feed(event[len(event)/2:])
			ev, ok := s.Next()
			if !ok || bytes.Count(ev.Data, []byte("y")) != size {
				t.Errorf("%s: event %v of %d bytes, want %d", f.name, ok, len(ev.Data), size)
			}
		}
	}
}
