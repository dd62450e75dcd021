package json

// Progress follows a JSON object or array that comes in fragments of escaped
// text, JSON within JSON as the arguments of a tool call are, to know whether
// it is whole.
type Progress struct {
	scan  Scanner
	begun bool
	free  bool
	whole bool
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
		} else if n := p.scan.Content(escaped[i:]); n > 0 {
			i += n - 1
			continue
		}
		p.next(c)
	}
}

func (p *Progress) next(c byte) {
	if !p.begun && c > ' ' {
		p.begun, p.free = true, c != '{'
	}
	if p.free {
		return
	}
	switch p.scan.Next(c) {
	case Opening:
		p.whole = false
	case Closing:
		p.whole = p.scan.Depth() <= 0
	case Space, Comma, Colon, Begin, Content, End, Scalar:
	}
}
