package sse

import "bytes"

// input is the reading side that all splitters share: the piece being read,
// how far it was read, and how the stream stands.
type input struct {
	piece    []byte
	pos      int // how much of piece was read
	max      int // bytes of one event at most
	mark     uint8
	closed   bool
	tooLarge bool
}

// byteOrderMark is U+FEFF in UTF-8. One may open a stream and is no part of
// it. input.mark counts how much of it was seen; at its length, the start of
// the stream is behind.
var byteOrderMark = [markLen]byte{0xef, 0xbb, 0xbf}

const markLen = 3

// feed starts a new piece and takes the byte order mark off the stream. What
// it returns are bytes taken for one in earlier pieces that now prove to be
// content, to be read before the piece.
func (in *input) feed(p []byte) (content []byte) {
	in.piece, in.pos = nil, 0
	if in.closed || in.tooLarge {
		return nil
	}
	in.piece = p
	for in.mark < markLen && in.pos < len(p) {
		if p[in.pos] != byteOrderMark[in.mark] {
			return in.endMark()
		}
		in.pos++
		in.mark++
	}
	return nil
}

// endMark says that no more of the byte order mark can come, and returns the
// part of it that was taken if it was not taken whole.
func (in *input) endMark() (content []byte) {
	if in.mark < markLen {
		content = byteOrderMark[:in.mark]
		in.mark = markLen
	}
	return content
}

// find returns where c comes next in the piece, or the piece's length. It
// keeps the answer in at (below pos where there is none yet): with two bytes
// sought in turns, a byte is still searched once for each.
func (in *input) find(at *int, c byte) int {
	if *at < in.pos {
		*at = len(in.piece)
		if i := bytes.IndexByte(in.piece[in.pos:], c); i >= 0 {
			*at = in.pos + i
		}
	}
	return *at
}

// done lets go of the piece, which belongs to the caller again.
func (in *input) done() { in.piece, in.pos = nil, 0 }

// fail puts the splitter at ErrEventTooLarge, where it stays.
func (in *input) fail() {
	in.tooLarge = true
	in.done()
}

// Err implements Splitter.
func (in *input) Err() error {
	if in.tooLarge {
		return ErrEventTooLarge
	}
	return nil
}
