package tinymodel

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

const (
	// dimensions are enough to tell a thousand random vectors apart.
	dimensions = 64
	heads      = 2
	// sharpness makes the right token's score stand out. A normalized vector has
	// the length 8 here, so that the right one gets 64 and the best wrong one 40:
	// no usual temperature chooses it.
	sharpness = 8
)

// Size says how much a model has to compute. It gets slower with it, and not
// better.
type Size struct {
	Context     int // tokens, at most
	Layers      int
	FeedForward int // the width of a layer; 64 of it are 48 KiB
}

// Fast is a model that hardly computes. It is faster than a server passes its
// tokens on.
var Fast = Size{Context: 1024, Layers: 1, FeedForward: 64}

// Write writes a model as a GGUF file. The same size is the same file.
func Write(w io.Writer, size Size) error {
	v := newVocabulary(texts())
	var f ggufFile
	describe(&f, size)
	describeTokens(&f, v)
	f.tensors = tensors(v, size)
	if err := f.writeTo(w); err != nil {
		return fmt.Errorf("tinymodel: %w", err)
	}
	return nil
}

func describe(f *ggufFile, size Size) {
	number := func(n int) uint32 { return uint32(n) } //nolint:gosec // sizes of a model
	f.set("general.architecture", "llama")
	f.set("general.name", "reciter")
	f.set("general.file_type", uint32(0)) // all float32
	f.set("llama.context_length", number(size.Context))
	f.set("llama.embedding_length", uint32(dimensions))
	f.set("llama.block_count", number(size.Layers))
	f.set("llama.feed_forward_length", number(size.FeedForward))
	f.set("llama.attention.head_count", uint32(heads))
	f.set("llama.attention.head_count_kv", uint32(heads))
	f.set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	f.set("llama.rope.dimension_count", uint32(dimensions/heads))
}

func describeTokens(f *ggufFile, v *vocabulary) {
	const normal, control = 1, 3 // llama.cpp's token types
	types := make([]int32, len(v.tokens))
	for i := range types {
		types[i] = normal
		if i < v.control {
			types[i] = control
		}
	}
	f.set("tokenizer.ggml.model", "gpt2")
	f.set("tokenizer.ggml.pre", "gpt-2")
	f.set("tokenizer.ggml.tokens", v.tokens)
	f.set("tokenizer.ggml.token_type", types)
	// One merge has to be there. Two bytes 0xFF are in no UTF-8 text.
	f.set("tokenizer.ggml.merges", []string{"ÿ ÿ"})
	f.set("tokenizer.ggml.bos_token_id", uint32(endToken))
	f.set("tokenizer.ggml.eos_token_id", uint32(endToken))
	f.set("tokenizer.ggml.add_bos_token", false)
	f.set("tokenizer.ggml.add_eos_token", false)
}

func tensors(v *vocabulary, size Size) []tensor {
	const dim = dimensions
	embeddings, output := weights(v)
	tokens, wide := uint64(len(v.tokens)), uint64(size.FeedForward) //nolint:gosec // a size is positive
	ones := make([]float32, dim)
	for i := range ones {
		ones[i] = 1
	}
	list := make([]tensor, 0, 3+9*size.Layers)
	list = append(list, []tensor{
		{"token_embd.weight", []uint64{dim, tokens}, embeddings},
		{"output_norm.weight", []uint64{dim}, ones},
		{"output.weight", []uint64{dim, tokens}, output},
	}...)
	for layer := range size.Layers {
		block := fmt.Sprintf("blk.%d.", layer)
		list = append(
			list,
			tensor{block + "attn_norm.weight", []uint64{dim}, ones},
			tensor{block + "attn_q.weight", []uint64{dim, dim}, nil},
			tensor{block + "attn_k.weight", []uint64{dim, dim}, nil},
			tensor{block + "attn_v.weight", []uint64{dim, dim}, nil},
			tensor{block + "attn_output.weight", []uint64{dim, dim}, nil},
			tensor{block + "ffn_norm.weight", []uint64{dim}, ones},
			tensor{block + "ffn_gate.weight", []uint64{dim, wide}, nil},
			tensor{block + "ffn_up.weight", []uint64{dim, wide}, nil},
			tensor{block + "ffn_down.weight", []uint64{wide, dim}, nil},
		)
	}
	return list
}

// weights returns the embedding of each token, a random unit vector, and the
// row of the output matrix that scores it: the embeddings of those it follows.
func weights(v *vocabulary) (embeddings, output []float32) {
	random := rand.New(rand.NewPCG(64, 1)) //nolint:gosec // the same vectors each time
	embeddings = make([]float32, len(v.tokens)*dimensions)
	output = make([]float32, len(embeddings))
	row := func(of []float32, id int) []float32 { return of[id*dimensions:][:dimensions] }
	for id := range v.tokens {
		vector := row(embeddings, id)
		sum := 0.0
		for i := range vector {
			x := random.NormFloat64()
			vector[i] = float32(x)
			sum += x * x
		}
		for i := range vector {
			vector[i] /= float32(math.Sqrt(sum))
		}
	}
	for id, before := range v.before {
		scores := row(output, id)
		for _, other := range before {
			for i, x := range row(embeddings, other) {
				scores[i] += sharpness * x
			}
		}
	}
	return embeddings, output
}
