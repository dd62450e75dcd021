package enginetest

import (
	"net/http"
	"strconv"
	"time"
)

// Delta is an event of OpenAI's chat completions that carries a text.
func Delta(text string) string {
	return `data: {"model":"m","choices":[{"index":0,"delta":{"content":` + strconv.Quote(text) + `}}]}` + "\n\n"
}

// Stop is how a stream of OpenAI's chat completions ends well.
const Stop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + Finished

// Finished is the last event of OpenAI's streams.
const Finished = "data: [DONE]\n\n"

// Handler is a next handler, with the signature of Caddy's.
type Handler func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP calls h.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return h(w, r) }

// Streams returns a next handler that answers with server-sent events, one piece
// after the other, and ends.
func Streams(pieces ...string) Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		EventStream(w)
		return Say(w, pieces...)
	}
}

// EventStream begins a stream of server-sent events.
func EventStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
}

// Say writes pieces as reverse_proxy does: each is flushed.
func Say(w http.ResponseWriter, pieces ...string) error {
	for _, piece := range pieces {
		if _, err := w.Write([]byte(piece)); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Hang waits until the call is cancelled, as a backend does that says nothing,
// and returns as reverse_proxy does: without an error.
func Hang(r *http.Request) error {
	<-r.Context().Done()
	return nil
}

// Pause waits, as a backend does between two pieces. It reports false where the
// call was cancelled meanwhile.
func Pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
