package rig

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Backend is an LLM backend whose answers the test writes.
type Backend struct {
	// Addr is where it listens, host and port.
	Addr string
	// Calls counts the requests that it has got.
	Calls atomic.Int64
	// Gone gets a value each time a client leaves before the answer was whole,
	// where the test's function waits for that with Left.
	Gone chan struct{}
}

// NewBackend runs a backend until the test ends.
func NewBackend(tb testing.TB, answer http.HandlerFunc) *Backend {
	tb.Helper()
	b := &Backend{Gone: make(chan struct{}, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.Calls.Add(1)
		answer(w, r)
	}))
	b.Addr = server.Listener.Addr().String()
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return b
}

// Left waits until the client has left, and tells the test.
func (b *Backend) Left(r *http.Request) {
	<-r.Context().Done()
	b.Gone <- struct{}{}
}

// Say writes pieces of a body, each in a write of its own.
func Say(w http.ResponseWriter, pieces ...string) {
	for _, piece := range pieces {
		_, _ = w.Write([]byte(piece))
		_ = http.NewResponseController(w).Flush()
	}
}

// Chunk is an OpenAI chat completion chunk with a text delta.
func Chunk(text string) string {
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` +
		text + `"},"finish_reason":null}]}` + "\n\n"
}

// Stop is the end of an OpenAI chat completion: the finish and [DONE].
const Stop = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` +
	"\n\ndata: [DONE]\n\n"

// EventStream sets the header of a stream of server-sent events.
func EventStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
}
