package provider

import (
	"hash/crc32"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// spoken is how much of a text was streamed. It stands for the text itself: a
// closing event repeats the whole of it, and of that only the rest is new.
type spoken struct {
	size int // bytes of escaped text
	sum  uint32
}

var spokenTable = crc32.MakeTable(crc32.Castagnoli)

// add takes a piece that was streamed, as escaped text.
func (s *spoken) add(text []byte) {
	s.size += len(text)
	s.sum = crc32.Update(s.sum, spokenTable, text)
}

// rest returns what of a whole text, the inside of a JSON string, was not
// streamed: all of it where nothing was, nothing where it does not begin with
// what was.
func (s *spoken) rest(raw []byte) []byte {
	switch {
	case s.size == 0:
		return raw
	case json.IsElided(raw): // what is too large to be told again
		return nil
	}
	text, _ := json.Clean(nil, view(raw))
	if len(text) <= s.size || crc32.Checksum(text[:s.size], spokenTable) != s.sum {
		return nil
	}
	return text[s.size:]
}

// is reports whether this is what was streamed.
func (s *spoken) is(raw []byte) bool {
	text, _ := json.Clean(nil, view(raw))
	return len(text) == s.size && crc32.Checksum(text, spokenTable) == s.sum
}

// repetition goes through a text that is repeated in parts, and finds what of it
// was not streamed.
type repetition struct {
	streamed spoken
	seen     spoken
	differs  bool
}

// rest returns what of the next part was not streamed.
func (r *repetition) rest(raw []byte) []byte {
	if r.streamed.size == 0 {
		return raw
	}
	if r.differs || json.IsElided(raw) {
		r.differs = true
		return nil
	}
	text, _ := json.Clean(nil, view(raw))
	if n := min(len(text), r.streamed.size-r.seen.size); n > 0 {
		r.seen.add(text[:n])
		text = text[n:]
	}
	if r.seen.size == r.streamed.size && r.seen.sum != r.streamed.sum {
		r.differs = true
	}
	if r.differs || r.seen.size < r.streamed.size {
		return nil
	}
	return text
}

// growing reads a text that some servers send in pieces and some, with every
// event, whole as far as it has come, where nothing in the stream says which.
// What begins with all that was said is taken for the whole. The second piece of
// a text in pieces may begin so by chance, as in "ha", "ha": then that much of it
// is lost, until one comes that does not.
type growing struct {
	said spoken
	mode growth
}

// growth is how a text comes.
type growth uint8

const (
	growsUnknown growth = iota
	growsWhole
	growsInPieces
)

// next returns what is new in the text of an event, the inside of a JSON string.
// isLast says that no more is to come: a text may then be shorter than it was,
// where the server has cut off a stop sequence.
func (g *growing) next(raw []byte, isLast bool) []byte {
	if len(raw) == 0 || g.said.size == 0 || g.mode == growsInPieces || json.IsElided(raw) {
		return raw
	}
	text, _ := json.Clean(nil, view(raw))
	switch {
	case len(text) >= g.said.size && crc32.Checksum(text[:g.said.size], spokenTable) == g.said.sum:
		g.mode = growsWhole
		return text[g.said.size:]
	case g.mode == growsWhole && isLast && len(text) < g.said.size:
		return nil
	}
	g.mode = growsInPieces
	return raw
}
