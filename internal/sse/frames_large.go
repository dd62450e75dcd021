package sse

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// largeFrame is a frame that is larger than the limit, and read past.
type largeFrame struct {
	left    int64  // bytes that are not read yet
	headers int    // where the headers end
	start   []byte // the prelude and the headers
	sum     uint32
	payload *json.Reducer
	end     []byte // the checksum
}

// readLarge reads on in the frame that is larger than the limit, to its end or
// to that of the piece.
func (f *Frames) readLarge() (Event, bool) {
	f.takeLarge(f.held)
	f.held = nil
	n := min(int64(len(f.piece)), f.large.left)
	f.takeLarge(f.piece[:n])
	f.piece = f.piece[n:]
	l := f.large
	if l.left > 0 {
		return Event{}, false
	}
	f.large = nil
	var h frameHeaders
	if l.sum != binary.BigEndian.Uint32(l.end) || !h.read(l.start[FramePrelude:]) {
		f.fail(ErrCorruptFrame)
		return Event{}, false
	}
	ev := h.event(l.payload.Bytes())
	ev.Reduced = true
	return ev, true
}

// takeLarge takes the next bytes of the frame.
func (f *Frames) takeLarge(b []byte) {
	l := f.large
	for len(b) > 0 {
		var part []byte
		switch {
		case len(l.start) < l.headers:
			part = b[:min(len(b), l.headers-len(l.start))]
			l.start = append(l.start, part...)
		case l.left > checksumLen:
			part = b[:min(int64(len(b)), l.left-checksumLen)]
			l.payload.Write(part)
		default:
			l.end = append(l.end, b...)
			l.left -= int64(len(b))
			return
		}
		l.sum = crc32.Update(l.sum, crc32.IEEETable, part)
		l.left -= int64(len(part))
		b = b[len(part):]
	}
}
