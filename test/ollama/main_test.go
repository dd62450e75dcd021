//go:build ollama

// Package ollama_test sends requests through a real Caddy to a real LLM server,
// Ollama, which scripts/ollama.sh builds. Recordings and a simulator say what
// was known when they were made; the server says how it dies, how long it is
// silent, and what it does when a client leaves.
//
// The build tag keeps the package out of go test ./...; make test-ollama runs
// it. It needs Linux: it looks at Ollama's processes in /proc.
package ollama_test

import (
	"fmt"
	"os"
	"testing"
)

// ollama is the server of all tests.
var ollama *server

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run runs the tests. Its end stops Ollama; where the process ends in any other
// way, the guard of the server does.
func run(m *testing.M) int {
	program := os.Getenv("LLMSTREAM_OLLAMA")
	if program == "" {
		fmt.Fprintln(os.Stderr, "LLMSTREAM_OLLAMA does not name a program: run make test-ollama")
		return 1
	}
	var err error
	if ollama, err = startServer(program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "The last that Ollama has logged:\n%s", ollama.log.tail(60))
	}
	if err := ollama.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
