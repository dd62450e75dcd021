package tinymodel

// endToken ends what the model says. It is the first of the vocabulary.
const endToken = 0

// vocabulary is the tokens of the model and their order.
type vocabulary struct {
	tokens  []string // as a GGUF file of a byte-level tokenizer spells them
	control int      // so many of them, from the first, stand for no bytes
	// before has, for a token, those that it follows.
	before map[int][]int
}

func newVocabulary(texts []text) *vocabulary {
	v := &vocabulary{
		tokens: []string{"<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"},
		before: make(map[int][]int),
	}
	first := len(v.tokens)
	for _, t := range texts {
		v.tokens = append(v.tokens, t.name)
	}
	v.control = len(v.tokens)
	ids := make(map[string]int) // of the tokens that stand for bytes
	add := func(piece string) int {
		id, ok := ids[piece]
		if !ok {
			id = len(v.tokens)
			ids[piece] = id
			v.tokens = append(v.tokens, spell(piece))
		}
		return id
	}
	// A prompt becomes single bytes: no merge joins any of its characters.
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	used := make(map[string]bool)
	for i, t := range texts {
		last := first + i
		begin := -1
		for _, piece := range split(t.says, used) {
			id := add(piece)
			if begin < 0 {
				begin = id
			}
			v.before[id] = append(v.before[id], last)
			last = id
		}
		if t.loop {
			v.before[begin] = append(v.before[begin], last)
		} else {
			v.before[endToken] = append(v.before[endToken], last)
		}
	}
	return v
}

// split cuts a text into pieces that are new: each is the shortest that is not
// in used, to which it is added. So nothing comes twice, and the bytes of a
// character that has not been there before come in different pieces.
func split(s string, used map[string]bool) []string {
	var pieces []string
	for len(s) > 0 {
		n := 1
		for n < len(s) && used[s[:n]] {
			n++
		}
		piece := s[:n]
		s = s[n:]
		if used[piece] && len(pieces) > 0 {
			// The rest of the text is not new, but the last piece with it is.
			end := len(pieces) - 1
			piece = pieces[end] + piece
			pieces = pieces[:end]
		}
		used[piece] = true
		pieces = append(pieces, piece)
	}
	return pieces
}

// spell returns a piece with a printable character for each byte, as GPT-2's
// tokenizer writes its vocabulary: Latin-1's printable ones stand for
// themselves, the others are numbered from 256 on.
func spell(piece string) string {
	runes := make([]rune, 0, len(piece))
	for i := range len(piece) {
		runes = append(runes, byteRunes[piece[i]])
	}
	return string(runes)
}

var byteRunes = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		if '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b {
			table[b] = rune(b)
		} else {
			table[b] = next
			next++
		}
	}
	return table
}()
