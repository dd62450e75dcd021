package fanout

import "encoding/binary"

// markEvery is how many events lie between two marks of a table.
const markEvery = 64

// table holds the lengths of consecutive pieces of text: a byte or two for
// each, as varints, with a mark every markEvery pieces so that seeking is not
// a walk from the start.
type table struct {
	lens  []byte
	marks []mark // marks[k] is the place of piece k*markEvery
	count int
}

// mark is the place of a piece: where it starts in the text, and where its
// length stands in the table.
type mark struct{ text, lens int }

// markSize is the memory of a mark, in bytes.
const markSize = 16

// add appends a piece of n bytes that starts at the offset start of the text.
func (t *table) add(start, n int) {
	if t.count%markEvery == 0 {
		t.marks = append(t.marks, mark{text: start, lens: len(t.lens)})
	}
	t.lens = binary.AppendUvarint(t.lens, uint64(n)) //nolint:gosec // a length is never negative
	t.count++
}

// seek returns the place of piece i, for i up to and including count.
func (t *table) seek(i int) mark {
	if t.count == 0 {
		return mark{}
	}
	m := min(i/markEvery, len(t.marks)-1)
	at := t.marks[m]
	for range i - m*markEvery {
		at = next(t.lens, at)
	}
	return at
}

// next returns the place of the piece after the one at at.
func next(lens []byte, at mark) mark {
	n, w := binary.Uvarint(lens[at.lens:])
	return mark{text: at.text + int(n), lens: at.lens + w} //nolint:gosec // it was an int
}

// reset forgets the pieces and keeps the memory.
func (t *table) reset() {
	t.lens, t.marks, t.count = t.lens[:0], t.marks[:0], 0
}
