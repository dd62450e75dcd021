package fanout

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A journal is a list of entries, told from any position on, and from the
// middle of an entry as well.
func TestJournalIsAListOfEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := journal{head: uint64(rapid.IntRange(0, 1<<40).Draw(t, "head"))}
		first, trimmed := j.head, j.head
		var all []entry // one for each position after first
		said := make(map[uint32]int)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				e := entry{
					response: rapid.SampledFrom([]uint32{1, 2, 3, 1 << 20, 1<<32 - 1}).Draw(t, "response"),
					kind:     entryKind(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "kind")), n: 1,
				}
				for range rapid.IntRange(1, 200).Draw(t, "times") {
					if e.kind == said0 {
						e.n = rapid.SampledFrom([]int{1, 1, 2, 500}).Draw(t, "n")
						e.from = said[e.response]
						said[e.response] += e.n
					}
					j.add(e)
					for i := range e.n {
						one := entry{first: first + uint64(len(all)) + 1, response: e.response, kind: e.kind, n: 1}
						if e.kind == said0 {
							one.from = e.from + i
						}
						all = append(all, one)
					}
					e.response = e.response%3 + 1
				}
			},
			"trim": func(t *rapid.T) {
				trimmed = max(trimmed, first+uint64(rapid.IntRange(0, len(all)).Draw(t, "at")))
				j.trim(trimmed)
			},
			"read": func(t *rapid.T) {
				at := trimmed + uint64(rapid.IntRange(0, int(j.head-trimmed)).Draw(t, "at"))
				limit := rapid.IntRange(1, 1000).Draw(t, "limit")
				var got []entry
				j.after(at, func(e entry) bool {
					for i := range e.n {
						got = append(got, entry{first: e.first + uint64(i), response: e.response, kind: e.kind, from: e.from + i, n: 1})
					}
					limit--
					return limit > 0
				})
				want := all[at-first:]
				if limit == 0 {
					want = want[:min(len(want), len(got))]
				}
				if !slices.Equal(got, want) {
					t.Fatalf("after %d of %d: %d entries, want %d", at, j.head, len(got), len(want))
				}
			},
			"": func(t *rapid.T) {
				if j.head != first+uint64(len(all)) {
					t.Fatalf("the head is %d after %d", j.head, len(all))
				}
				held := cap(j.blocks) * blockSize
				for _, b := range j.blocks {
					held += cap(b.data)
					if len(b.data) > blockLen || len(b.data) == 0 {
						t.Fatalf("a block of %d bytes", len(b.data))
					}
				}
				if held != j.size() || (trimmed == j.head) != j.empty() && len(all) > 0 && trimmed > first {
					t.Fatalf("%d bytes are held, the size is %d; empty: %v", held, j.size(), j.empty())
				}
			},
		})
	})
}

// said0 is the kind said, where a variable has its name.
const said0 = said

// Two responses that speak in turn cost a few bytes for each change, and one
// that speaks alone costs nothing.
func TestAJournalIsSmall(t *testing.T) {
	var j journal
	from := [2]int{}
	for i := range 10_000 {
		j.add(entry{response: uint32(i % 2), n: 1 + i%3, from: from[i%2]})
		from[i%2] += 1 + i%3
	}
	if size := j.size() / 10_000; size > 7 {
		t.Fatalf("%d bytes for each entry", size)
	}
	before := j.size()
	j.add(entry{response: 2, n: 1})
	for i := range 10_000 {
		j.add(entry{response: 2, n: 1, from: i + 1})
	}
	if j.size() > before+blockLen {
		t.Fatalf("%d bytes more for who speaks alone", j.size()-before)
	}
}
