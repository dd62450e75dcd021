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

// wishOf returns what a whole body says.
func wishOf(body []byte) wish {
	var s streamScanner
	s.scan(body[:min(len(body), maxScan)])
	return s.wish
}

// streamScanner looks for the member "stream" of a JSON object while its bytes
// pass. It keeps nothing but where it is.
type streamScanner struct {
	wish wish

	depth   int
	inText  bool // inside a string
	escaped bool // after a backslash in one
	isKey   bool // the string is a key of the outermost object
	match   int  // how much of the key is as wanted; -1: it is another
	value   bool // the next value is the one
	done    bool
}

const streamKey = "stream"

// scan looks at the next bytes.
func (s *streamScanner) scan(p []byte) {
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
func (s *streamScanner) text(c byte) {
	switch {
	case s.escaped:
		s.escaped, s.match = false, -1
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inText = false
		if s.value { // "stream":"…" says nothing
			s.done = true
		}
	case s.match >= 0 && s.match < len(streamKey) && c == streamKey[s.match]:
		s.match++
	default:
		s.match = -1
	}
}

// structure takes a byte between strings.
func (s *streamScanner) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
	case '"':
		s.inText, s.match = true, -1
		if s.depth == 1 && s.isKey {
			s.match = 0
		}
	case '{', '[':
		s.depth++
		s.isKey = s.depth == 1 && c == '{'
		s.done = s.value || s.depth == 1 && c == '['
	case '}', ']':
		s.depth--
		s.done = s.depth <= 0
	case ',':
		s.isKey = s.depth == 1
	case ':':
		if s.depth == 1 && s.isKey {
			s.value = s.match == len(streamKey)
			s.isKey = false
		}
	case 't', 'f':
		if s.value {
			s.wish = asksForWhole
			if c == 't' {
				s.wish = asksForStream
			}
			s.done = true
		}
	default:
		s.done = s.value || s.depth == 0
	}
}

// scannedBody is a request body that is scanned while it is read.
type scannedBody struct {
	io.ReadCloser
	scanner streamScanner
	left    int        // bytes still to look at
	found   func(wish) // called once, when it is known
}

// Read implements io.Reader.
func (b *scannedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 && !b.scanner.done {
		b.scanner.scan(p[:min(n, b.left)])
		b.left -= n
		if b.scanner.done || err != nil {
			b.scanner.done = true
			b.found(b.scanner.wish)
		}
	}
	return n, err
}
