package sse

// Held returns how many bytes the splitter holds between two feeds, and how
// much memory its buffers take.
func Held(s Splitter) (size, capacity int) {
	if f, ok := s.(*Frames); ok {
		return len(f.held), cap(f.held)
	}
	for _, sp := range spans(s) {
		size += sp.size()
		capacity += cap(sp.buf)
	}
	return size, capacity
}

// Poison overwrites the last byte that the splitter holds, so that a splitter
// which looked at it a second time would go wrong.
func Poison(s Splitter, c byte) {
	for _, sp := range spans(s) {
		if n := len(sp.buf); n > 0 {
			sp.buf[n-1] = c
		}
	}
}

func spans(s Splitter) []*span {
	switch s := s.(type) {
	case *Parser:
		if s.object != nil {
			return []*span{&s.name, &s.data.span, &s.object.element.span}
		}
		return []*span{&s.name, &s.data.span}
	case *Lines:
		return []*span{&s.line.span}
	case *Array:
		return []*span{&s.element.span}
	default:
		panic("unknown splitter")
	}
}
