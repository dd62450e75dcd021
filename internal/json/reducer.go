package json

// elided takes the place of the inside of a string that a Reducer has left out.
// No JSON string has such a byte.
const elided = "\x00"

// IsElided reports whether raw stands for the inside of a string that a Reducer
// has left out.
func IsElided(raw []byte) bool { return string(raw) == elided }

// What a Reducer keeps at most of one string, in bytes, and of a run of scalars
// in an array.
const (
	maxKeptString = 4 << 10
	maxKeptRun    = 64
)

// Reducer passes over a JSON text that is too large to be kept and keeps its
// structure: what is long in it, strings and arrays of numbers, is left out,
// and a mark is put in its place. A Cursor reads the rest, and whoever needs
// what was left out finds the mark; see IsElided.
type Reducer struct {
	scan  Scanner
	kept  []byte
	max   int // bytes
	over  bool
	fresh bool // nothing was seen yet

	start    int  // in a string: where it begins in kept
	long     bool // in a string: it was left out
	inArray  bool // the bracket that was opened last is an array's, and none was closed since
	run      int  // how many scalars stand in a row in it
	inScalar bool
	dropped  bool // scalars were left out, and no other value was kept since
}

// NewReducer returns a Reducer that keeps at most max bytes.
func NewReducer(maxKept int) *Reducer { return &Reducer{max: maxKept, fresh: true} }

// Write takes the next bytes.
func (r *Reducer) Write(p []byte) {
	for len(p) > 0 && !r.over {
		if n := r.scan.Content(p); n > 0 {
			r.content(p[:n])
			p = p[n:]
			continue
		}
		r.next(p[0])
		p = p[1:]
	}
}

// Bytes returns what was kept, and nothing where that is no use: it was no JSON
// object or array, or there was too much of it.
func (r *Reducer) Bytes() []byte {
	if r.over {
		return nil
	}
	return r.kept
}

// next takes a byte that is not plain content of a string.
func (r *Reducer) next(c byte) {
	class := r.scan.Next(c)
	if r.fresh && class != Space {
		r.fresh = false
		if class != Opening {
			r.fail()
			return
		}
	}
	wasScalar := r.inScalar
	r.inScalar = class == Scalar
	switch class {
	case Space:
	case Content:
		r.content([]byte{c})
	case Begin:
		r.separate()
		r.keep(c)
		r.start, r.long = len(r.kept), false
	case End, Colon:
		r.keep(c)
	case Opening:
		r.separate()
		r.inArray, r.run = c == '[', 0
		r.keep(c)
	case Closing:
		r.inArray, r.dropped = false, false
		r.keep(c)
	case Comma:
		if !r.dropped {
			r.keep(c)
		}
	case Scalar:
		r.scalar(c, !wasScalar)
	}
}

// separate puts the comma before a value that follows on scalars that were left
// out.
func (r *Reducer) separate() {
	if r.dropped {
		r.keep(',')
	}
	r.dropped, r.run = false, 0
}

// scalar takes a byte of a number or literal.
func (r *Reducer) scalar(c byte, first bool) {
	if first && r.inArray {
		r.run++
	}
	switch {
	case r.dropped:
	case r.inArray && r.run > maxKeptRun:
		r.kept = append(r.kept, '"')
		r.kept = append(r.kept, elided...)
		r.keep('"')
		r.dropped = true
	default:
		r.keep(c)
	}
}

// content takes content of a string.
func (r *Reducer) content(b []byte) {
	switch {
	case r.long:
	case len(r.kept)-r.start+len(b) > min(maxKeptString, r.max/2):
		r.kept = append(r.kept[:r.start], elided...)
		r.long = true
	default:
		r.kept = append(r.kept, b...)
		r.check()
	}
}

func (r *Reducer) keep(c byte) {
	r.kept = append(r.kept, c)
	r.check()
}

func (r *Reducer) check() {
	if len(r.kept) > r.max {
		r.fail()
	}
}

// fail gives up what was kept.
func (r *Reducer) fail() { r.kept, r.over = nil, true }
