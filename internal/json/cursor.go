package json

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// maxDepth is how deep the brackets of an event may nest.
const maxDepth = 512

// Cursor reads a JSON value (RFC 8259) once, from front to back, and checks
// its syntax on the way: what it hands out can be trusted once End has said
// so. It allocates nothing. gjson, which serves off the hot path, would read
// the same bytes once to validate them and once more for each level above a
// field, and copy every string with an escape in it.
//
// The first byte out of place turns the cursor bad. It is then at the end of
// its input, so that every loop over it ends.
//
// Two things pass that RFC 8259 has not: NaN, Infinity and -Infinity, which
// Python's encoder writes, as values, and the strings that a Reducer has left
// out; see IsElided.
//
// Objects are read in this way, and arrays without key:
//
//	for ok := c.Open('{'); ok; ok = c.More('{') {
//		switch string(c.Key()) {
//		case "text":
//			text = c.Str()
//		default:
//			c.Skip()
//		}
//	}
type Cursor struct {
	data    []byte
	pos     int
	depth   int
	escaped bool // the last string has an escape
	failed  bool // see HasError
	bad     bool
}

// MakeCursor returns a Cursor at the start of data, which must not change while
// the Cursor is in use.
func MakeCursor(data []byte) Cursor { return Cursor{data: data} }

// NewCursor is MakeCursor for those that need a pointer.
func NewCursor(data []byte) *Cursor { return &Cursor{data: data} }

// Bad reports whether a byte was out of place.
func (c *Cursor) Bad() bool { return c.bad }

// Pos returns how many bytes were read.
func (c *Cursor) Pos() int { return c.pos }

// Inside puts a new Cursor behind the first n bytes of its data, which must be
// known to be those of an object up to the value of one of its members.
func (c *Cursor) Inside(n int) { c.pos, c.depth = n, 1 }

// Fail turns the cursor bad.
func (c *Cursor) Fail() {
	c.bad = true
	c.pos = len(c.data)
}

// End reports whether the whole input was one valid value.
func (c *Cursor) End() bool {
	return c.Peek() == 0 && !c.bad && c.pos == len(c.data)
}

// Peek returns the first byte of what comes next, 0 at the end of the input.
func (c *Cursor) Peek() byte {
	for c.pos < len(c.data) {
		b := c.data[c.pos]
		if b > ' ' || !IsSpace(b) {
			return b
		}
		c.pos++
	}
	return 0
}

// Open enters an object or array, named by its opening bracket, and reports
// whether it has a member.
func (c *Cursor) Open(bracket byte) bool {
	if c.Peek() != bracket || c.depth == maxDepth {
		c.Fail()
		return false
	}
	c.pos++
	c.depth++
	if c.Peek() == closing(bracket) {
		c.pos++
		c.depth--
		return false
	}
	return true
}

// More goes on to the next member of an object or array, or leaves it.
func (c *Cursor) More(bracket byte) bool {
	switch c.Peek() {
	case ',':
		c.pos++
		return true
	case closing(bracket):
		c.pos++
		c.depth--
		return false
	}
	c.Fail()
	return false
}

// Key reads the name of a member of an object, up to its value.
func (c *Cursor) Key() []byte {
	if c.Peek() != '"' {
		c.Fail()
		return nil
	}
	key := c.Quoted()
	if c.escaped {
		key = []byte(Unquote(key))
	}
	if !c.colon() {
		return nil
	}
	if len(key) == len("error") && c.depth == 1 && string(key) == "error" {
		c.failed = true
	}
	return key
}

// HasError reports whether the outermost object has a member error, empty or
// not, among those that were read. Every format has to look out for it.
func (c *Cursor) HasError() bool { return c.failed }

// colon reads what stands between the name of a member and its value.
func (c *Cursor) colon() bool {
	if c.Peek() != ':' {
		c.Fail()
		return false
	}
	c.pos++
	return true
}

// Str reads a value and returns what stands between its quotes, escapes and
// all; nil where it is no string.
func (c *Cursor) Str() []byte {
	if c.Peek() != '"' {
		c.Skip()
		return nil
	}
	return c.Quoted()
}

// Bool reads a value and reports whether it is true.
func (c *Cursor) Bool() bool {
	isTrue := c.Peek() == 't'
	c.Skip()
	return isTrue && !c.bad
}

// maxCount bounds a count, so that a sum of a few cannot overflow. It is the
// largest whole number that JavaScript has.
const maxCount = 1<<53 - 1

// Count reads a value and returns it where it is a whole number that is not
// negative, else -1.
func (c *Cursor) Count() int64 {
	if b := c.Peek(); b < '0' || b > '9' {
		c.Skip()
		return -1
	}
	raw := view(c.Raw())
	if len(raw) == 1 { // nearly every index
		return int64(raw[0] - '0')
	}
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return min(n, maxCount)
	}
	if f, err := strconv.ParseFloat(raw, 64); err == nil {
		return int64(min(f, maxCount))
	}
	return -1
}

// Enter is Open for a value that need not be an object or array of this kind.
// One that is not is skipped.
func (c *Cursor) Enter(bracket byte) bool {
	if c.Peek() != bracket {
		c.Skip()
		return false
	}
	return c.Open(bracket)
}

// EnterOutput is Open for a value that carries output. One that is empty is
// skipped, whatever its type: some gateways make {} of an empty list. Any
// other value of the wrong type turns the cursor bad.
func (c *Cursor) EnterOutput(bracket byte) bool {
	if c.Peek() == bracket {
		return c.Open(bracket)
	}
	c.skipEmpty()
	return false
}

// Output reads an object or array that carries output, and returns its bytes;
// nil where it is empty and of another type, as with EnterOutput.
func (c *Cursor) Output(bracket byte) []byte {
	if c.Peek() == bracket {
		return c.Raw()
	}
	c.skipEmpty()
	return nil
}

// Text reads a string that carries output and returns what stands between its
// quotes; nil where it is empty and of another type, as with EnterOutput.
func (c *Cursor) Text() []byte {
	if c.Peek() == '"' {
		return c.Quoted()
	}
	c.skipEmpty()
	return nil
}

// skipEmpty reads null, "", {} or [], and fails at any other value.
func (c *Cursor) skipEmpty() {
	switch b := c.Peek(); b {
	case 'n':
		c.Skip()
	case '"':
		if len(c.Quoted()) > 0 {
			c.Fail()
		}
	case '{', '[':
		if c.Open(b) {
			c.Fail()
		}
	default:
		c.Fail()
	}
}

// Field reads a value and returns the inside of a string in it, nil where it is
// no object with such a field.
func (c *Cursor) Field(name string) (value []byte) {
	for ok := c.Enter('{'); ok; ok = c.More('{') {
		if string(c.Key()) == name {
			value = c.Str()
		} else {
			c.Skip()
		}
	}
	return value
}

// Raw reads a value and returns its bytes.
func (c *Cursor) Raw() []byte {
	c.Peek()
	start := c.pos
	c.Skip()
	if c.bad {
		return nil
	}
	return c.data[start:c.pos]
}

// Skip reads over a value.
func (c *Cursor) Skip() {
	switch b := c.Peek(); b {
	case '"':
		c.Quoted()
	case '{':
		for ok := c.Open('{'); ok; ok = c.More('{') {
			c.Key()
			c.Skip()
		}
	case '[':
		for ok := c.Open('['); ok; ok = c.More('[') {
			c.Skip()
		}
	case 't':
		c.literal("true")
	case 'f':
		c.literal("false")
	case 'n':
		c.literal("null")
	case 'N':
		c.literal("NaN")
	case 'I':
		c.literal("Infinity")
	default:
		c.number()
	}
}

// Quoted reads a string, at whose opening quote the cursor is, and returns
// what stands between the quotes. It looks at eight bytes at a time.
func (c *Cursor) Quoted() []byte {
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
			if end := i + len(elided); i == start && end < len(data) && string(data[i:end]) == elided && data[end] == '"' {
				c.pos = end + 1
				return data[start:end]
			}
			c.Fail()
			return nil
		case b != '\\':
			i++
			continue
		}
		n := anyEscapeLen(data[i:])
		if n == 0 {
			c.Fail()
			return nil
		}
		c.escaped = true
		i += n
	}
	c.Fail()
	return nil
}

// anyEscapeLen returns the length of the escape that b starts with, 0 where it
// is none.
func anyEscapeLen(b []byte) int {
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
func (c *Cursor) literal(word string) {
	if len(c.data)-c.pos < len(word) || string(c.data[c.pos:c.pos+len(word)]) != word {
		c.Fail()
		return
	}
	c.pos += len(word)
}

// number reads a number, and fails at whatever else is no value.
func (c *Cursor) number() {
	if c.at('-') {
		c.pos++
		if c.at('I') {
			c.literal("Infinity")
			return
		}
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
func (c *Cursor) digits() {
	start := c.pos
	for c.pos < len(c.data) && isDigit(c.data[c.pos]) {
		c.pos++
	}
	if c.pos == start {
		c.Fail()
	}
}

func (c *Cursor) at(b byte) bool { return c.pos < len(c.data) && c.data[c.pos] == b }

// closing returns the bracket that closes what the given one opens. In ASCII
// it is the second after it.
func closing(bracket byte) byte { return bracket + 2 }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// IsSpace reports whether b is white space of JSON.
func IsSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// IsValue reports whether data is one JSON value, as a Cursor reads it.
func IsValue(data []byte) bool {
	c := MakeCursor(data)
	c.Skip()
	return c.End()
}

// Unquote returns the text that the inside of a JSON string stands for, as
// valid UTF-8; nothing where it was left out. The result does not share memory
// with raw.
func Unquote(raw []byte) string {
	if IsElided(raw) {
		return ""
	}
	text, _ := Clean(nil, view(raw))
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return string(AppendPlain(make([]byte, 0, len(text)), text))
}

// AppendCompact appends a JSON value, as a Cursor reads it, as JSON by the
// letter: without white space, with every string as escaped text, and with
// null for NaN and Infinity. ok is false where raw is no value, or something in
// it was left out.
func AppendCompact(dst, raw []byte) (compact []byte, ok bool) {
	start := len(dst)
	c := MakeCursor(raw)
	if dst = c.appendCompact(dst); c.End() {
		return dst, true
	}
	return dst[:start], false
}

// appendCompact appends the value that comes next.
func (c *Cursor) appendCompact(dst []byte) []byte {
	switch b := c.Peek(); b {
	case '"':
		return c.appendString(dst)
	case '{', '[':
		dst = append(dst, b)
		first := true
		for ok := c.Open(b); ok; ok = c.More(b) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if b == '{' {
				dst = append(c.appendString(dst), ':')
				c.colon()
			}
			dst = c.appendCompact(dst)
		}
		return append(dst, closing(b))
	default:
		raw := c.Raw()
		if bytes.IndexByte(raw, 'N') >= 0 || bytes.IndexByte(raw, 'I') >= 0 {
			raw = []byte("null")
		}
		return append(dst, raw...)
	}
}

// appendString appends the string that comes next.
func (c *Cursor) appendString(dst []byte) []byte {
	if c.Peek() != '"' {
		c.Fail()
		return dst
	}
	raw := c.Quoted()
	if IsElided(raw) {
		c.Fail()
		return dst
	}
	dst = append(dst, '"')
	text, grown := Clean(dst, view(raw))
	if len(grown) == len(dst) { // it is raw's own memory
		grown = append(grown, text...)
	}
	return append(grown, '"')
}
