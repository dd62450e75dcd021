package tinymodel

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// next is the token that the model finds most likely after another one, and by
// how much.
func next(embeddings, output []float32, token int) (best int, lead float32) {
	vector := embeddings[token*dimensions:][:dimensions]
	var first, second float32
	for id := range len(output) / dimensions {
		score := float32(0)
		for i, x := range output[id*dimensions:][:dimensions] {
			score += 8 * x * vector[i] // as the norm makes the vector 8 long
		}
		switch {
		case score > first:
			best, first, second = id, score, first
		case score > second:
			second = score
		}
	}
	return best, first - second
}

// bytesOf returns what a spelled token stands for.
func bytesOf(token string) string {
	var b []byte
	for _, r := range token {
		b = append(b, byte(slices.Index(byteRunes[:], r)))
	}
	return string(b)
}

// Whatever the weights are, each text follows its name, token by token and with
// a lead that no temperature makes up for.
func TestTextsFollowTheirNames(t *testing.T) {
	v := newVocabulary(texts())
	embeddings, output := weights(v)
	for _, text := range texts() {
		want := text.says
		if text.loop {
			want = strings.Repeat(want, 3)
		}
		token := slices.Index(v.tokens, text.name)
		said, n := "", 0
		for len(said) < len(want) {
			var lead float32
			token, lead = next(embeddings, output, token)
			if lead < 20 {
				t.Fatalf("%s: the lead after %q is %v", text.name, said, lead)
			}
			if token < v.control {
				t.Fatalf("%s: %s after %q", text.name, v.tokens[token], said)
			}
			said += bytesOf(v.tokens[token])
			n++
		}
		if said != want {
			t.Errorf("%s says %q, not %q", text.name, said, want)
		}
		if end, _ := next(embeddings, output, token); !text.loop && end != endToken {
			t.Errorf("%s does not end", text.name)
		}
		t.Logf("%s: %d tokens, %d bytes", text.name, n, len(said))
	}
}

// A character that is cut is what a server must put together again.
func TestCharactersAreCut(t *testing.T) {
	cut := 0
	for _, piece := range split(Answer(), make(map[string]bool)) {
		if !utf8.ValidString(piece) {
			cut++
		}
	}
	if cut < 20 {
		t.Errorf("only %d tokens end or begin inside a character", cut)
	}
}

func TestSameSizeIsTheSameFile(t *testing.T) {
	sum := func(size Size) [sha256.Size]byte {
		var b bytes.Buffer
		if err := Write(&b, size); err != nil {
			t.Fatal(err)
		}
		if b.Len() < 200<<10 || b.Len() > 2<<20 {
			t.Errorf("%+v: %d bytes", size, b.Len())
		}
		return sha256.Sum256(b.Bytes())
	}
	if first, again := sum(Fast), sum(Fast); first != again {
		t.Error("the same size is another file")
	}
	if sum(Fast) == sum(Size{Context: 2048, Layers: 1, FeedForward: 64}) {
		t.Error("another size is the same file")
	}
}
