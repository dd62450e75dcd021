package sse_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// chunk returns an event of 300 bytes, the usual size of one with one token.
func chunk(before, after string) []byte {
	return []byte(before + strings.Repeat("x", 300-len(before)-len(after)) + after)
}

// framings are the splitters and a 300-byte event of each.
var framings = []struct {
	name  string
	fresh func(maxEvent int) sse.Splitter
	event []byte
}{
	{"Parser", func(n int) sse.Splitter { return sse.NewParser(n) }, chunk(`data: {"text":"`, "\"}\n\n")},
	{"ParserNamed", func(n int) sse.Splitter { return sse.NewParser(n) }, chunk("event: content_block_delta\ndata: {\"text\":\"", "\"}\n\n")},
	{"Lines", func(n int) sse.Splitter { return sse.NewLines(n) }, chunk(`{"text":"`, "\"}\n")},
	{"Array", func(n int) sse.Splitter { return sse.NewArray(n) }, chunk(`{"text":"`, "\"}\n,")},
}

// drain reads all events that are complete.
func drain(s sse.Splitter) (events int) {
	for _, ok := s.Next(); ok; _, ok = s.Next() {
		events++
	}
	return events
}

// BenchmarkEvent measures one event of 300 bytes: alone in its piece, cut into
// two pieces, and as one of a hundred in a piece.
func BenchmarkEvent(b *testing.B) {
	for _, f := range framings {
		for _, pieces := range []struct {
			name string
			cut  [][]byte
		}{
			{"whole", [][]byte{f.event}},
			{"split", [][]byte{f.event[:150], f.event[150:]}},
		} {
			b.Run(f.name+"/"+pieces.name, func(b *testing.B) {
				s := f.fresh(large)
				b.SetBytes(int64(len(f.event)))
				b.ReportAllocs()
				for b.Loop() {
					for _, piece := range pieces.cut {
						s.Feed(piece)
						drain(s)
					}
				}
			})
		}
		b.Run(f.name+"/hundred", func(b *testing.B) {
			s := f.fresh(large)
			piece := bytes.Repeat(f.event, 100)
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				s.Feed(piece)
				drain(s)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/event")
		})
	}
}

// BenchmarkByteByByte measures events of growing size that come byte by byte:
// the time for a byte does not depend on it.
func BenchmarkByteByByte(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 15, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			event := []byte("data: " + strings.Repeat("x", size) + "\n\n")
			s := sse.NewParser(size)
			for b.Loop() {
				for i := range event {
					s.Feed(event[i : i+1])
					drain(s)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(event)), "ns/byte")
		})
	}
}
