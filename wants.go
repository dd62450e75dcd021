package llmstream

import (
	"io"
	"net/http"
	"strings"
)

// maxScan is how much of a request body is looked at for "stream":true, in
// bytes.
const maxScan = 1 << 20

// alwaysStreams are the ends of paths whose answer is a stream whatever the
// body says; streamsUnlessTold those whose answer is one unless the body says
// "stream":false.
var (
	alwaysStreams     = []string{":streamGenerateContent", "/converse-stream", "/invoke-with-response-stream", "/generate_stream"}
	streamsUnlessTold = []string{"/api/chat", "/api/generate"}
)

// wish is what a request says of the form of its answer.
type wish uint8

const (
	unsaid wish = iota
	asksForStream
	asksForWhole
)

// wantsStream reports whether a request asks for a stream, given what its body
// says.
func wantsStream(r *http.Request, body wish) bool {
	path := originalPath(r)
	switch {
	case acceptsEventStream(r) || hasSuffix(path, alwaysStreams):
		return true
	case hasSuffix(path, streamsUnlessTold):
		return body != asksForWhole
	default:
		return body == asksForStream
	}
}

func hasSuffix(path string, suffixes []string) bool {
	for _, suffix := range suffixes {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}

// asked is what a request body says.
type asked struct {
	stream wish
	usage  bool // stream_options.include_usage of OpenAI's API
}

// askedOf returns what a whole body says.
func askedOf(body []byte) asked {
	var s bodyScanner
	s.scan(body[:min(len(body), maxScan)])
	return s.asked
}

// bodyScanner looks for the members "stream" and "include_usage" of a JSON
// object while its bytes pass. It keeps nothing but where it is.
type bodyScanner struct {
	asked asked

	depth   int
	inText  bool   // inside a string
	escaped bool   // after a backslash in one
	isKey   bool   // the string is a key that may be one of ours
	wanted  string // the key that is looked for at this depth
	match   int    // how much of the key is as wanted; -1: it is another
	value   bool   // the next value is the one
	done    bool
}

// The keys that are looked for: one of the outermost object, one of an object
// in it.
const (
	streamKey = "stream"
	usageKey  = "include_usage"
)

// scan looks at the next bytes.
func (s *bodyScanner) scan(p []byte) {
	for _, c := range p {
		switch {
		case s.done:
			return
		case s.inText:
			s.text(c)
		default:
			s.structure(c)
		}
	}
}

// text takes a byte inside a string.
func (s *bodyScanner) text(c byte) {
	switch {
	case s.escaped:
		s.escaped, s.match = false, -1
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inText = false
		s.value = false // "stream":"…" says nothing
	case s.match >= 0 && s.match < len(s.wanted) && c == s.wanted[s.match]:
		s.match++
	default:
		s.match = -1
	}
}

// structure takes a byte between strings.
func (s *bodyScanner) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
	case '"':
		s.inText, s.match = true, -1
		if s.isKey {
			s.match = 0
		}
	case '{', '[':
		s.depth++
		s.value = false
		s.expectKey()
		s.done = s.depth == 1 && c == '['
	case '}', ']':
		s.depth--
		s.done = s.depth <= 0
		s.isKey = false
	case ',':
		s.value = false
		s.expectKey()
	case ':':
		s.value = s.isKey && s.match == len(s.wanted)
		s.isKey = false
	case 't', 'f':
		s.literal(c == 't')
	default:
		s.value = false
		s.done = s.depth == 0
	}
}

// expectKey says that the next string is a key, if this is an object.
func (s *bodyScanner) expectKey() {
	s.isKey = s.depth == 1 || s.depth == 2
	s.wanted = streamKey
	if s.depth == 2 {
		s.wanted = usageKey
	}
}

// literal takes the first letter of true or false.
func (s *bodyScanner) literal(yes bool) {
	switch {
	case !s.value:
	case s.wanted == usageKey:
		s.asked.usage = yes
	case yes:
		s.asked.stream = asksForStream
	default:
		s.asked.stream = asksForWhole
	}
	s.value = false
}

// scannedBody is a request body that is scanned while it is read.
type scannedBody struct {
	io.ReadCloser
	scanner bodyScanner
	left    int         // bytes still to look at
	found   func(asked) // called once, when it is known
}

// Read implements io.Reader.
func (b *scannedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 && !b.scanner.done {
		b.scanner.scan(p[:min(n, b.left)])
		b.left -= n
		if b.scanner.done || b.left <= 0 || err != nil {
			b.scanner.done = true
			b.found(b.scanner.asked)
		}
	}
	return n, err
}
