package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// view shows text as it comes, and below it, on a terminal, a status line.
// Elsewhere the text alone goes to standard output, and what is said about it to
// standard error.
type view struct {
	term  *Terminal
	shown time.Time // when the status line was last drawn
	open  bool      // the text has not ended its line
}

// statusEvery bounds how often the status line is drawn.
const statusEvery = 100 * time.Millisecond

// ECMA-48 control sequences, as every terminal of today knows them.
const (
	clearBelow = "\x1b[J"
	faint      = "\x1b[2m"
	plain      = "\x1b[0m"
	// belowCursor opens a line below the cursor without moving it, and goes there:
	// index, up, save, down.
	belowCursor = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K"
	backAgain   = "\x1b8"
)

func newView(term *Terminal) *view { return &view{term: term} }

// text shows a piece of text. Control characters of the model's are not for the
// terminal.
func (v *view) text(s string, aside bool) {
	if s == "" || aside && !v.term.Live {
		return
	}
	v.open = !strings.HasSuffix(s, "\n")
	if v.term.Live {
		s = strings.Map(printable, s)
		if aside {
			s = faint + s + plain
		}
		s = clearBelow + s
	}
	_, _ = fmt.Fprint(v.term.Out, s)
}

// printable leaves out what would control a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return -1
	}
	return r
}

// note says something about the text, on a line of its own.
func (v *view) note(s string) {
	s = strings.Map(printable, s)
	if !v.term.Live {
		_, _ = fmt.Fprintln(v.term.Err, s)
		return
	}
	line := clearBelow + faint + s + plain + "\n"
	if v.open {
		line = clearBelow + "\n" + line
		v.open = false
	}
	_, _ = fmt.Fprint(v.term.Out, line)
}

// status draws the status line.
func (v *view) status(s string) {
	if !v.term.Live || time.Since(v.shown) < statusEvery {
		return
	}
	v.shown = time.Now()
	_, _ = fmt.Fprint(v.term.Out, belowCursor+faint+s+plain+backAgain)
}

// pause says why nothing comes: in the status line, where there is one.
func (v *view) pause(why string) {
	if v.term.Live {
		v.shown = time.Time{}
		v.status(why)
		return
	}
	v.note(why)
}

// close ends the text, and says how it went.
func (v *view) close(status string) {
	if v.open {
		_, _ = fmt.Fprintln(v.term.Out)
		v.open = false
	}
	v.note(status)
}
