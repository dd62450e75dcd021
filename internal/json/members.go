package json

// maxWord is the longest key or text value that a Members looks at, in bytes.
const maxWord = 128

// Members looks for a few members of a JSON object while its bytes pass. It
// keeps nothing but where it is, and one word.
type Members struct {
	// Wanted reports whether the member with a key is looked for. depth is 1
	// for the members of the outermost object, 2 for those of an object in it.
	Wanted func(key string, depth int) bool
	// Found is called with each value of such a member that is a scalar: a
	// number or literal as it stands there, or the inside of a string, unless
	// it is longer than 128 bytes or has escapes.
	Found func(key string, depth int, value string, isString bool)

	scan     Scanner
	key      string // of the member whose value comes next
	keyDepth int    // 0 where none that is wanted does
	isKey    bool   // the next string is a key that may be wanted
	inScalar bool
	word     []byte
	spoiled  bool // the word is too long, or has escapes
	done     bool
}

// maxMemberDepth is how deep members are looked for.
const maxMemberDepth = 2

// Done reports whether the outermost value has ended, or is no object.
func (m *Members) Done() bool { return m.done }

// Write takes the next bytes.
func (m *Members) Write(p []byte) {
	for len(p) > 0 && !m.done {
		if n := m.scan.Content(p); n > 0 {
			m.content(p[:n])
			p = p[n:]
			continue
		}
		m.next(p[0])
		p = p[1:]
	}
}

// next takes a byte that is not plain content of a string.
func (m *Members) next(c byte) {
	depth := m.scan.Depth()
	class := m.scan.Next(c)
	if m.inScalar && class != Scalar {
		m.inScalar = false
		m.value(depth, false)
	}
	switch class {
	case Space:
	case Begin:
		m.word, m.spoiled = m.word[:0], false
	case Content: // an escape
		m.spoiled = true
	case End:
		if !m.isKey {
			m.value(depth, true)
		}
	case Opening:
		m.keyDepth = 0
		m.isKey = c == '{' && m.scan.Depth() <= maxMemberDepth
		m.done = c == '[' && m.scan.Depth() == 1
	case Closing:
		m.isKey = false
		m.done = m.scan.Depth() <= 0
	case Comma:
		m.keyDepth = 0
		m.isKey = m.scan.Depth() <= maxMemberDepth
		m.done = m.scan.Depth() <= 0
	case Colon:
		if m.isKey && !m.spoiled && m.Wanted(string(m.word), m.scan.Depth()) {
			m.key, m.keyDepth = string(m.word), m.scan.Depth()
		}
		m.isKey = false
	case Scalar:
		m.scalar(c)
	}
}

// scalar takes a byte of a number or literal.
func (m *Members) scalar(c byte) {
	if !m.inScalar {
		m.inScalar, m.spoiled = true, false
		m.word = m.word[:0]
	}
	m.done = m.scan.Depth() == 0
	m.content([]byte{c})
}

// content takes a part of a word.
func (m *Members) content(b []byte) {
	switch {
	case !m.isKey && m.keyDepth == 0 || m.spoiled:
	case len(m.word)+len(b) > maxWord:
		m.spoiled = true
	default:
		m.word = append(m.word, b...)
	}
}

// value tells of the value at a depth that has ended, where it is wanted.
func (m *Members) value(depth int, isString bool) {
	if m.keyDepth == depth && m.keyDepth > 0 && !m.spoiled {
		m.Found(m.key, m.keyDepth, string(m.word), isString)
	}
	m.keyDepth = 0
}
