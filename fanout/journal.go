package fanout

import (
	"encoding/binary"
	"sort"
)

// entryKind is what an entry of a journal tells of a response.
type entryKind uint8

const (
	said    entryKind = iota // some of its events
	started                  // that it has begun
	ended                    // that it has ended
)

// entry is one step in the order of a channel. It refers to events and holds
// none.
type entry struct {
	first    uint64 // its position in the channel; of n events, that of the first
	response uint32 // number of the response in the channel
	kind     entryKind
	from     int // said: index of the event before the first
	n        int // said: how many events; else 1
}

// last is the position of the entry's last event.
func (e *entry) last() uint64 { return e.first + uint64(e.n) - 1 } //nolint:gosec // n is at least 1

// after returns the part of the entry that comes after a position within it.
func (e entry) after(at uint64) entry {
	if at < e.first {
		return e
	}
	had := int(at - e.first + 1) //nolint:gosec // less than n
	e.first, e.from, e.n = at+1, e.from+had, e.n-had
	return e
}

// journal is the order of a channel: one entry after another, each at the
// positions after those of the one before. What one response says without
// another between is one entry, however many appends it was. An entry takes 4
// to 7 bytes: three numbers as varints, in blocks that are found by the position
// of their first entry.
//
// It has no locks.
type journal struct {
	head   uint64 // position of the last event
	tail   entry  // the newest, which may grow; n is 0 where there is none
	blocks []block
	held   int // bytes of the blocks
}

// block is a sequence of encoded entries.
type block struct {
	first uint64
	data  []byte
}

const (
	// blockLen is how many bytes of entries a block has: what a reader decodes
	// to find its position.
	blockLen = 256
	// entryLen is the most that an entry takes.
	entryLen = binary.MaxVarintLen32 + 1 + 2*binary.MaxVarintLen64
	// blockSize is the memory of a block, in bytes, but for its data.
	blockSize = 32
)

// size is the memory of the journal, in bytes.
func (j *journal) size() int { return j.held + cap(j.blocks)*blockSize }

// empty reports whether the journal has no entries.
func (j *journal) empty() bool { return j.tail.n == 0 && len(j.blocks) == 0 }

// add appends an entry, at the positions after head.
func (j *journal) add(e entry) {
	e.first = j.head + 1
	j.head = e.last()
	if t := &j.tail; t.n > 0 && t.kind == said && e.kind == said && t.response == e.response && t.from+t.n == e.from {
		t.n += e.n
		return
	}
	j.flush()
	j.tail = e
}

// flush encodes the tail, which is whole now.
func (j *journal) flush() {
	if j.tail.n == 0 {
		return
	}
	if k := len(j.blocks); k == 0 || len(j.blocks[k-1].data)+entryLen > blockLen {
		b := block{first: j.tail.first}
		if k > 0 { // most channels have no second one, and need little of the first
			b.data = make([]byte, 0, blockLen)
		}
		j.blocks = append(j.blocks, b)
		j.held += cap(b.data)
	}
	b := &j.blocks[len(j.blocks)-1]
	j.held -= cap(b.data)
	b.data = j.tail.append(b.data)
	j.held += cap(b.data)
	j.tail = entry{}
}

// append encodes the entry.
func (e *entry) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(e.response)<<2|uint64(e.kind))
	if e.kind != said {
		return b
	}
	b = binary.AppendUvarint(b, uint64(e.n))       //nolint:gosec // at least 1
	return binary.AppendUvarint(b, uint64(e.from)) //nolint:gosec // an index
}

// decode decodes the entry at the beginning of b and returns what is behind it.
func (e *entry) decode(b []byte) []byte {
	head, w := binary.Uvarint(b)
	b = b[w:]
	e.response, e.kind = uint32(head>>2), entryKind(head&3) //nolint:gosec // as it was encoded
	e.from, e.n = 0, 1
	if e.kind != said {
		return b
	}
	n, w := binary.Uvarint(b)
	from, v := binary.Uvarint(b[w:])
	e.n, e.from = int(n), int(from) //nolint:gosec // as it was encoded
	return b[w+v:]
}

// after calls f with what comes after a position, in order, until f returns
// false.
func (j *journal) after(at uint64, f func(e entry) bool) {
	if j.tail.n == 0 || at+1 < j.tail.first {
		k := sort.Search(len(j.blocks), func(k int) bool { return j.blocks[k].first > at+1 })
		for _, b := range j.blocks[max(0, k-1):] {
			if !b.after(at, f) {
				return
			}
		}
	}
	if j.tail.n > 0 && at < j.head {
		f(j.tail.after(at))
	}
}

// after is that of journal for one block. It reports whether f wants more.
func (b *block) after(at uint64, f func(e entry) bool) bool {
	e := entry{first: b.first}
	for data := b.data; len(data) > 0; e.first += uint64(e.n) { //nolint:gosec // at least 1
		if data = e.decode(data); e.last() > at && !f(e.after(at)) {
			return false
		}
	}
	return true
}

// trim drops whole blocks whose entries are all at a position or before it.
func (j *journal) trim(at uint64) {
	if at >= j.head {
		*j = journal{head: j.head}
		return
	}
	k := 0
	for k < len(j.blocks) && j.end(k) <= at {
		j.held -= cap(j.blocks[k].data)
		k++
	}
	clear(j.blocks[:k])
	j.blocks = j.blocks[k:]
}

// end is the position of the last event of the block k.
func (j *journal) end(k int) uint64 {
	switch {
	case k+1 < len(j.blocks):
		return j.blocks[k+1].first - 1
	case j.tail.n > 0:
		return j.tail.first - 1
	default:
		return j.head
	}
}
