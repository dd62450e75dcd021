package llmsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 32 << 20

// Backend is a simulated LLM backend, an http.Handler. It answers
//
//	POST /v1/chat/completions   as OpenAI
//	POST /v1/messages           as Anthropic
//	POST /api/chat              as Ollama
//	POST /api/generate          as Ollama
//	GET  /v1/models             a list of one model
//	GET  /health                {"status":"ok"}
//	GET  /stats                 Stats as JSON
//
// With ServerOllama it answers all of the POSTs as Ollama, and two more:
//
//	POST /v1/completions        OpenAI's API
//	POST /v1/responses          OpenAI's API
//
// A request streams or not as it does at the real one: "stream" is false by
// default, at Ollama true. The generating paths take a GET too, for EventSource:
// it is a POST with "stream":true and nothing else. The headers X-Sim-* override
// Options for one request.
//
// A request without a tool's result in its last message, but with tools, is
// answered with a call of the first one, or of the one that tool_choice names.
// The text of the messages does not matter.
//
// The zero value works. A Backend must not be copied, nor its Options be changed,
// after its first request.
type Backend struct {
	Options Options

	started, finished, cancelled atomic.Int64
}

// Stats counts the generations of a Backend. Requests that were refused, and
// those that do not generate, are not among them.
type Stats struct {
	// Started is how many there were.
	Started int64 `json:"started"`
	// Finished is how many came to their own end, as planned or with a fault. A
	// client that has read a response to its end finds it counted.
	Finished int64 `json:"finished"`
	// Cancelled is how many ended because the client left.
	Cancelled int64 `json:"cancelled"`
	// Active is how many are running: Started - Finished - Cancelled.
	Active int64 `json:"active"`
}

// Stats returns the counts of this moment.
func (b *Backend) Stats() Stats {
	// What has ended is read first: Active can be too large for a moment, but
	// never negative.
	s := Stats{Finished: b.finished.Load(), Cancelled: b.cancelled.Load()}
	s.Started = b.started.Load()
	s.Active = s.Started - s.Finished - s.Cancelled
	return s
}

// ServeHTTP implements http.Handler. It panics with http.ErrAbortHandler where
// FaultDie tells it to.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a, ok := b.api(r); ok {
		b.serveGeneration(w, r, a)
		return
	}
	status := http.StatusOK
	var body any
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		status = http.StatusNotFound
		body = openAIErrorBody(status, "llmsim: no "+r.Method+" at this path")
	case r.URL.Path == "/v1/models":
		body = openAIModels()
	case r.URL.Path == "/health":
		body = map[string]string{"status": "ok"}
	case r.URL.Path == "/stats":
		body = b.Stats()
	default:
		status = http.StatusNotFound
		body = openAIErrorBody(status, "llmsim: nothing at this path")
	}
	_ = writeJSON(w, jsonType, status, body) // no client is left to be told of an error
}

// api returns the API of a request's path.
func (b *Backend) api(r *http.Request) (api, bool) {
	server := b.Options.Server
	_ = serverHeader(r.Header, HeaderServer, &server) // prepare refuses what is no server
	a, ok := apis[server][r.URL.Path]
	return a, ok
}

func (b *Backend) serveGeneration(w http.ResponseWriter, r *http.Request, a api) {
	g, err := b.prepare(w, r, a)
	if err != nil {
		status := http.StatusBadRequest
		if refused, ok := errors.AsType[*refusal](err); ok {
			status = refused.status
		}
		_ = writeJSON(w, a.wholeType, status, a.errorBody(status, err.Error())) // no client is left to be told of an error
		return
	}
	left := false
	defer func() { // FaultDie panics
		if left {
			b.cancelled.Add(1)
		} else {
			b.finished.Add(1)
		}
	}()
	left = g.run(r.Context()) != nil
}

// prepare reads the request and returns the generation that answers it, which
// is then counted as started. Its error is a refusal, or one with status 400.
func (b *Backend) prepare(w http.ResponseWriter, r *http.Request, a api) (*generation, error) {
	if r.Method != http.MethodPost && r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		return nil, &refusal{http.StatusMethodNotAllowed, errors.New("llmsim: method not allowed")}
	}
	opts, err := b.Options.withHeaders(r.Header)
	if err != nil {
		return nil, err
	}
	// net/http notices that an HTTP/1.1 client left only once its body was read.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, &refusal{http.StatusRequestEntityTooLarge, err}
	}
	if err != nil {
		return nil, fmt.Errorf("llmsim: reading the body: %w", err)
	}
	req, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet {
		stream := true
		req.Stream = &stream
	}
	res := newResponse(a, opts, &req, len(body), b.started.Add(1))
	return &generation{api: a, opts: opts, res: res, out: a.writer(res), w: w, flusher: http.NewResponseController(w)}, nil
}

// refusal is why a request is not answered with a generation.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// writeJSON answers with v as JSON. Its error is that the client has left.
func writeJSON(w http.ResponseWriter, contentType string, status int, v any) error {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, err := w.Write(marshal(v))
	return err
}

// marshal returns v as JSON with HTML unescaped, as the real APIs have it.
func marshal(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // v is of our own types, which all have a JSON form
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Interface guard
var _ http.Handler = (*Backend)(nil)
