// Package llmsim is a simulated LLM backend for demos, tests and benchmarks. It
// speaks the streaming APIs of OpenAI, Anthropic and Ollama, at a pace and with
// the faults that it is told to have.
//
// The invariant: the same request gets the same text, token for token, in every
// dialect and at every pace, and a generation ends when its client leaves. So a
// test can compare what came through a proxy with Text, and count with Stats
// what the proxy asked for and what it cancelled. A Backend has no goroutines of
// its own.
//
// The package is not part of the llm_stream handler: only tests and cmd/caddy
// import it.
package llmsim
