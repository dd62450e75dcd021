package json

// Progress follows a JSON object or array that comes in fragments of escaped
// text, JSON within JSON as the arguments of a tool call are, to know whether
// it is whole. It looks at strings and brackets alone, since it is on the way of
// every fragment.
type Progress struct {
	depth    int
	begun    bool
	free     bool
	whole    bool
	inString bool
	escape   bool // the next byte of the string is part of an escape
}

// Begun reports whether there was more than white space.
func (p *Progress) Begun() bool { return p.begun }

// Free reports whether it is free text: it began with anything but the brace
// of an object, and nothing tells where it ends.
func (p *Progress) Free() bool { return p.free }

// Whole reports whether the object has ended.
func (p *Progress) Whole() bool { return p.whole }

// Feed takes the next fragment.
func (p *Progress) Feed(escaped []byte) {
	for i := 0; i < len(escaped) && !p.free; i++ {
		c := escaped[i]
		if c == '\\' && i+1 < len(escaped) {
			i++
			if c = escaped[i]; c != '"' && c != '\\' {
				c = ' ' // a control character, or one that means as much as a letter
			}
		}
		switch {
		case p.escape:
			p.escape = false
		case p.inString:
			p.inString = c != '"'
			p.escape = c == '\\'
		default:
			p.outside(c)
		}
	}
}

// outside takes a byte that is not in a string.
func (p *Progress) outside(c byte) {
	if !p.begun && c > ' ' {
		p.begun, p.free = true, c != '{'
	}
	switch c {
	case '"':
		p.inString = true
	case '{', '[':
		p.depth++
		p.whole = false
	case '}', ']':
		p.depth--
		p.whole = p.depth <= 0
	}
}
