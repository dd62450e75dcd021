// Package tinymodel writes a language model that recites: a GGUF file of the
// llama architecture, some hundred kilobytes, that a real LLM server loads like
// any other. It says the texts of this package, to the byte, at any usual
// temperature. Its one invariant: no token has two tokens that may follow it.
//
// Attention and feed-forward weights are zero, so every block runs and adds
// nothing, and what comes next depends on the last token alone. The embeddings
// are random unit vectors, far from one another in 64 dimensions, and the row
// of the output matrix that scores a token is the embedding of the one before
// it. The last token of the prompt is the name of a text, which [Template]
// chooses; it is followed by the first piece of the text, that by the second,
// and so on.
package tinymodel
