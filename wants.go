package llmstream

import (
	"io"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// maxScan is how much of a request body is looked at for "stream":true, in
// bytes.
const maxScan = 1 << 20

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
	case acceptsEventStream(r) || provider.AlwaysStreams(path):
		return true
	case provider.StreamsUnlessTold(path):
		return body != asksForWhole
	default:
		return body == asksForStream
	}
}

// asked is what a request body says.
type asked struct {
	stream wish
	usage  bool   // stream_options.include_usage of OpenAI's API
	model  string // empty where it is not there, or longer than maxWord
}

// askedOf returns what a whole body says.
func askedOf(body []byte) asked {
	var s bodyScanner
	s.scan(body[:min(len(body), maxScan)])
	return s.asked
}

// member is a member of a JSON object that is looked for.
type member uint8

const (
	noMember     member = iota
	streamMember        // "stream" of the outermost object
	modelMember         // "model" of the outermost object
	usageMember         // "include_usage" of an object in it
)

// memberOf returns the member that has a key at a depth.
func memberOf(key string, depth int) member {
	switch {
	case depth == 1 && key == "stream":
		return streamMember
	case depth == 1 && key == "model":
		return modelMember
	case depth == 2 && key == "include_usage":
		return usageMember
	}
	return noMember
}

// maxWord is the longest key or model name that is looked at, in bytes.
const maxWord = 128

// bodyScanner looks for a few members of a JSON object while its bytes pass. It
// keeps nothing but where it is, and one word.
type bodyScanner struct {
	asked asked

	depth   int
	inText  bool   // inside a string
	escaped bool   // after a backslash in one
	isKey   bool   // the string is a key that may be one of ours
	value   member // whose value comes next
	word    []byte // the key, or the name of the model
	spoilt  bool   // the word is too long, or has escapes
	done    bool
}

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
		s.escaped, s.spoilt = false, true
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inText = false
		if s.value == modelMember && !s.spoilt {
			s.asked.model = string(s.word)
		}
		s.value = noMember // "stream":"…" says nothing
	case !s.isKey && s.value != modelMember:
	case len(s.word) == maxWord:
		s.spoilt = true
	default:
		s.word = append(s.word, c)
	}
}

// structure takes a byte between strings.
func (s *bodyScanner) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
	case '"':
		s.inText, s.spoilt, s.word = true, false, s.word[:0]
	case '{', '[':
		s.depth++
		s.value = noMember
		s.isKey = c == '{' && s.depth <= 2
		s.done = s.depth == 1 && c == '['
	case '}', ']':
		s.depth--
		s.done = s.depth <= 0
		s.isKey = false
	case ',':
		s.value = noMember
		s.isKey = s.depth <= 2
	case ':':
		if s.isKey && !s.spoilt {
			s.value = memberOf(string(s.word), s.depth)
		}
		s.isKey = false
	case 't', 'f':
		s.literal(c == 't')
	default:
		s.value = noMember
		s.done = s.depth == 0
	}
}

// literal takes the first letter of true or false.
func (s *bodyScanner) literal(yes bool) {
	switch {
	case s.value == usageMember:
		s.asked.usage = yes
	case s.value == streamMember && yes:
		s.asked.stream = asksForStream
	case s.value == streamMember:
		s.asked.stream = asksForWhole
	}
	s.value = noMember
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
