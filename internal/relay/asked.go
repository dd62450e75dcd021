package relay

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/compress"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// wish is what a request says of the form of its answer.
type wish uint8

const (
	unsaid wish = iota
	asksForStream
	asksForWhole
)

// asked is what a request body says.
type asked struct {
	stream  wish
	usage   bool   // stream_options.include_usage of OpenAI's API
	model   string // empty where it is not there, or longer than what is looked at
	choices int    // n, Gemini's candidateCount, Cohere's num_generations; 0 where it is not said
}

// dashScopeStream is the header field with which clients of DashScope ask for a
// stream (Alibaba Cloud Model Studio, DashScope API reference).
const dashScopeStream = "X-DashScope-SSE"

// wantsStream reports whether a request asks for a stream, given what its body
// says. Where it does, heartbeats may commit the response before the upstream's
// header, and the time to the first token runs from admission; elsewhere both
// wait for that header.
func wantsStream(q *Request, body wish) bool {
	switch {
	case acceptsOnlyEventStream(q.Request) || provider.AlwaysStreams(q.Path) || strings.EqualFold(q.Header.Get(dashScopeStream), "enable"):
		return true
	case provider.StreamsUnlessTold(q.Path):
		return body != asksForWhole
	default:
		return body == asksForStream
	}
}

// AsksForStream reports whether a request asks for a stream, given its body, or
// the start of it, as it is sent.
func AsksForStream(r *http.Request, path string, body []byte) bool {
	return wantsStream(&Request{Request: r, Path: path}, askedOf(body, r.Header.Get("Content-Encoding")).stream)
}

// wantsStreamEarly reports whether a request asks for a stream whatever its body
// says.
func wantsStreamEarly(q *Request) bool { return wantsStream(q, asksForWhole) }

// acceptsOnlyEventStream reports whether server-sent events are the one type that
// the client accepts. A client of MCP accepts JSON too, and waits for either.
func acceptsOnlyEventStream(r *http.Request) bool {
	types := 0
	for _, line := range r.Header["Accept"] {
		types += 1 + strings.Count(line, ",")
	}
	return types == 1 && deliver.Accepts(r, "text/event-stream")
}

// maxDecoded is how much a compressed request body is decoded to, in bytes, to be
// looked through: it is thrown away, but costs time.
const maxDecoded = 256 << 20

// bodyScan looks through a request body while its bytes pass, and keeps none of
// them.
type bodyScan struct {
	said    asked
	over    bool
	members json.Members
	decoder *compress.Decoder // nil where the body is not compressed
	decoded int
}

// newBodyScan returns what looks through a body with a content coding.
func newBodyScan(coding string) *bodyScan {
	s := new(bodyScan)
	s.members = json.Members{Wanted: isWanted, Found: s.found}
	if coding == "" || strings.EqualFold(coding, "identity") {
		return s
	}
	s.decoder = compress.NewDecoder(coding, s.look)
	s.over = s.decoder == nil
	return s
}

// isWanted reports whether a member of the body says something.
func isWanted(key string, depth int) bool {
	switch key {
	case "stream", "model", "n", "num_generations":
		return depth == 1
	case "include_usage", "candidateCount", "candidate_count":
		return depth == 2
	}
	return false
}

// found takes the value of a member.
func (s *bodyScan) found(key string, _ int, value string, isString bool) {
	switch {
	case key == "model":
		if isString {
			s.said.model = value
		}
	case isString: // "stream":"true" says nothing
	case key == "include_usage":
		s.said.usage = value == "true"
	case key == "stream" && value == "true":
		s.said.stream = asksForStream
	case key == "stream" && value == "false":
		s.said.stream = asksForWhole
	case key == "stream": // says nothing either
	default: // one of the names for the number of choices
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			s.said.choices = n
		}
	}
}

// Write looks at the next bytes of the body as they are sent.
func (s *bodyScan) Write(p []byte) {
	switch {
	case s.over:
	case s.decoder == nil:
		s.look(p)
	default:
		if _, err := s.decoder.Write(p); err != nil {
			s.end()
		}
	}
}

// look looks at the next bytes of the decoded body.
func (s *bodyScan) look(p []byte) {
	s.decoded += len(p)
	if s.decoded > maxDecoded && s.decoder != nil {
		s.over = true // the decoder is in the middle of a Write: end stops it
	}
	if !s.over {
		s.members.Write(p)
		s.over = s.members.Done()
	}
}

// end says that there is no more of the body, or that it is not looked at.
func (s *bodyScan) end() {
	if s.decoder != nil {
		_ = s.decoder.Close() // an end that is missing is for the backend to notice
		s.decoder = nil
	}
	s.over = true
}

// askedOf returns what a whole body with a content coding says.
func askedOf(body []byte, coding string) asked {
	s := newBodyScan(coding)
	s.Write(body)
	s.end()
	return s.said
}
