package fanout

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func TestTableSeeksToEveryPiece(t *testing.T) {
	// around the marks, and lengths around the widths of a varint
	for _, count := range []int{0, 1, 2, markEvery - 1, markEvery, markEvery + 1, 2 * markEvery, 5*markEvery + 7} {
		rng := rand.New(rand.NewPCG(uint64(count), 1))
		var tab table
		places := []mark{{}}
		var at mark
		for range count {
			n := []int{0, 1, 5, 127, 128, 300, 1<<14 - 1, 1 << 14}[rng.IntN(8)]
			tab.add(at.text, n)
			at.text += n
			at.lens += len(binary.AppendUvarint(nil, uint64(n)))
			places = append(places, at)
		}
		for i, want := range places {
			if got := tab.seek(i); got != want {
				t.Fatalf("of %d pieces: piece %d is at %+v, want %+v", count, i, got, want)
			}
		}
	}
}

func TestTableIsEmptyAfterReset(t *testing.T) {
	var tab table
	for i := range 3 * markEvery {
		tab.add(i*4, 4)
	}
	tab.reset()
	tab.add(0, 7)
	tab.add(7, 2)
	if got := tab.seek(2); got != (mark{text: 9, lens: 2}) || tab.count != 2 {
		t.Fatalf("%d pieces, the end at %+v", tab.count, got)
	}
}
