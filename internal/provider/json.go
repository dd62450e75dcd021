package provider

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// maxDepth is how deep the brackets of an event may nest.
const maxDepth = 512

// cursor reads a JSON value (RFC 8259) once, from front to back, and checks
// its syntax on the way: what it hands out can be trusted once end has said
// so. It allocates nothing. gjson, which serves off the hot path, would read
// the same bytes once to validate them and once more for each level above a
// field, and copy every string with an escape in it.
//
// The first byte out of place turns the cursor bad. It is then at the end of
// its input, so that every loop over it ends.
//
// Objects are read in this way, and arrays without key:
//
//	for ok := c.open('{'); ok; ok = c.more('{') {
//		switch string(c.key()) {
//		case "text":
//			text = c.str()
//		default:
//			c.skip()
//		}
//	}
type cursor struct {
	data    []byte
	pos     int
	depth   int
	escaped bool // the last string has an escape
	bad     bool
}

// fail turns the cursor bad.
func (c *cursor) fail() {
	c.bad = true
	c.pos = len(c.data)
}

// end reports whether the whole input was one valid value.
func (c *cursor) end() bool {
	return c.peek() == 0 && !c.bad && c.pos == len(c.data)
}

// peek returns the first byte of what comes next, 0 at the end of the input.
func (c *cursor) peek() byte {
	for c.pos < len(c.data) {
		b := c.data[c.pos]
		if b > ' ' || !isSpace(b) {
			return b
		}
		c.pos++
	}
	return 0
}

// open enters an object or array, named by its opening bracket, and reports
// whether it has a member.
func (c *cursor) open(bracket byte) bool {
	if c.peek() != bracket || c.depth == maxDepth {
		c.fail()
		return false
	}
	c.pos++
	c.depth++
	if c.peek() == closing(bracket) {
		c.pos++
		c.depth--
		return false
	}
	return true
}

// more goes on to the next member of an object or array, or leaves it.
func (c *cursor) more(bracket byte) bool {
	switch c.peek() {
	case ',':
		c.pos++
		return true
	case closing(bracket):
		c.pos++
		c.depth--
		return false
	}
	c.fail()
	return false
}

// key reads the name of a member of an object, up to its value.
func (c *cursor) key() []byte {
	if c.peek() != '"' {
		c.fail()
		return nil
	}
	key := c.quoted()
	if c.escaped {
		key = []byte(unquote(key))
	}
	if c.peek() != ':' {
		c.fail()
		return nil
	}
	c.pos++
	return key
}

// str reads a value and returns what stands between its quotes, escapes and
// all; nil where it is no string.
func (c *cursor) str() []byte {
	if c.peek() != '"' {
		c.skip()
		return nil
	}
	return c.quoted()
}

// boolean reads a value and reports whether it is true.
func (c *cursor) boolean() bool {
	isTrue := c.peek() == 't'
	c.skip()
	return isTrue && !c.bad
}

// count reads a value and returns it where it is a whole number that is not
// negative, else -1.
func (c *cursor) count() int64 {
	if b := c.peek(); b < '0' || b > '9' {
		c.skip()
		return -1
	}
	raw := view(c.raw())
	if len(raw) == 1 { // nearly every index
		return int64(raw[0] - '0')
	}
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(raw, 64); err == nil && f < 1<<53 {
		return int64(f)
	}
	return -1
}

// isError reads the value of an error field and reports whether it stands for
// an error. Many servers send the field with every event, empty.
func (c *cursor) isError() bool {
	return isError(gjson.Parse(view(c.raw()))) && !c.bad
}

// enter is open for a value that need not be an object or array of this kind.
// One that is not is skipped.
func (c *cursor) enter(bracket byte) bool {
	if c.peek() != bracket {
		c.skip()
		return false
	}
	return c.open(bracket)
}

// enterOutput is open for a value that carries output. It may be null; anything
// else cannot be decoded.
func (c *cursor) enterOutput(bracket byte) bool {
	if c.peek() == 'n' {
		c.skip()
		return false
	}
	return c.open(bracket)
}

// field reads a value and returns the inside of a string in it, nil where it is
// no object with such a field.
func (c *cursor) field(name string) (value []byte) {
	for ok := c.enter('{'); ok; ok = c.more('{') {
		if string(c.key()) == name {
			value = c.str()
		} else {
			c.skip()
		}
	}
	return value
}

// raw reads a value and returns its bytes.
func (c *cursor) raw() []byte {
	c.peek()
	start := c.pos
	c.skip()
	if c.bad {
		return nil
	}
	return c.data[start:c.pos]
}

// skip reads over a value.
func (c *cursor) skip() {
	switch b := c.peek(); b {
	case '"':
		c.quoted()
	case '{':
		for ok := c.open('{'); ok; ok = c.more('{') {
			c.key()
			c.skip()
		}
	case '[':
		for ok := c.open('['); ok; ok = c.more('[') {
			c.skip()
		}
	case 't':
		c.literal("true")
	case 'f':
		c.literal("false")
	case 'n':
		c.literal("null")
	default:
		c.number()
	}
}

// quoted reads a string, at whose opening quote the cursor is, and returns
// what stands between the quotes. It looks at eight bytes at a time.
func (c *cursor) quoted() []byte {
	const every = 0x0101010101010101
	data := c.data
	start := c.pos + 1
	c.escaped = false
	for i := start; i < len(data); {
		if len(data)-i >= 8 {
			word := binary.LittleEndian.Uint64(data[i:])
			quote, solidus := word^every*'"', word^every*'\\'
			// The high bit of the first quotation mark, reverse solidus or
			// control character is set, and none below it.
			special := ((word-every*' ')&^word | (quote-every)&^quote | (solidus-every)&^solidus) & (every * 0x80)
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) / 8
		}
		switch b := data[i]; {
		case b == '"':
			c.pos = i + 1
			return data[start:i]
		case b < ' ':
			c.fail()
			return nil
		case b != '\\':
			i++
			continue
		}
		n := escapeLen(data[i:])
		if n == 0 {
			c.fail()
			return nil
		}
		c.escaped = true
		i += n
	}
	c.fail()
	return nil
}

// escapeLen returns the length of the escape that b starts with, 0 where it
// is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, d := range b[2:6] {
			if !isDigit(d) && (d|0x20 < 'a' || d|0x20 > 'f') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// literal reads true, false or null.
func (c *cursor) literal(word string) {
	if len(c.data)-c.pos < len(word) || string(c.data[c.pos:c.pos+len(word)]) != word {
		c.fail()
		return
	}
	c.pos += len(word)
}

// number reads a number, and fails at whatever else is no value.
func (c *cursor) number() {
	if c.at('-') {
		c.pos++
	}
	if c.at('0') {
		c.pos++
	} else {
		c.digits()
	}
	if c.at('.') {
		c.pos++
		c.digits()
	}
	if c.at('e') || c.at('E') {
		c.pos++
		if c.at('+') || c.at('-') {
			c.pos++
		}
		c.digits()
	}
}

// digits reads one or more digits.
func (c *cursor) digits() {
	start := c.pos
	for c.pos < len(c.data) && isDigit(c.data[c.pos]) {
		c.pos++
	}
	if c.pos == start {
		c.fail()
	}
}

func (c *cursor) at(b byte) bool { return c.pos < len(c.data) && c.data[c.pos] == b }

// closing returns the bracket that closes what the given one opens. In ASCII
// it is the second after it.
func closing(bracket byte) byte { return bracket + 2 }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// isSpace reports whether b is white space of JSON.
func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// isJSON reports whether data is one JSON value.
func isJSON(data []byte) bool {
	c := cursor{data: data}
	c.skip()
	return c.end()
}

// unquote returns the text that the inside of a JSON string stands for, as
// valid UTF-8. The result does not share memory with raw.
func unquote(raw []byte) string {
	text := string(raw)
	if strings.Contains(text, `\`) {
		text = gjson.Parse(`"` + text + `"`).String()
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// standsFor reports whether the inside of a JSON string stands for text, which
// unquote has returned.
func standsFor(raw []byte, text string) bool {
	return string(raw) == text || unquote(raw) == text
}

// view returns b as a string of the same memory, valid until b changes. It is
// the one place in this package that is unsafe; it is there because both
// gjson and json take strings, which would be a copy for every event.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // G103: gone before b is written to
}
