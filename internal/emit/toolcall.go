package emit

import (
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// opensCall reports whether a fragment is the first of its call.
func opensCall(ev *event.Event) bool {
	return ev.Tool.ID != "" || ev.Tool.Name != ""
}

// appendCallID appends the escaped id of the call that a fragment opens. Some
// providers have none, but the client of an SDK answers a call by its id, so
// it is made from that of the response: every client gets the same one.
func appendCallID(b []byte, prefix, responseID string, ev *event.Event) []byte {
	if ev.Tool.ID != "" {
		return json.Append(b, ev.Tool.ID)
	}
	b = append(b, prefix...)
	b = append(b, responseID...)
	b = append(b, '_')
	if ev.Choice != 0 {
		b = strconv.AppendInt(b, int64(ev.Choice), 10)
		b = append(b, '_')
	}
	return strconv.AppendInt(b, int64(ev.Tool.Index), 10)
}

// arguments follows the JSON text of a call's arguments as it comes, to know
// whether it is whole.
type arguments struct {
	depth     int  // of objects and arrays
	inString  bool // between quotation marks
	afterMark bool // in a string, after a reverse solidus
	whole     bool // an object, array or string has ended at depth 0
	begun     bool // there was more than white space
	free      bool // they are no JSON object: the input of a tool that takes free text
}

// feed takes the next fragment, which is escaped text: JSON within JSON.
func (a *arguments) feed(escaped []byte) {
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '\\' && i+1 < len(escaped) {
			i++
			if c = escaped[i]; c != '"' && c != '\\' {
				c = ' ' // a control character
			}
		}
		a.next(c)
	}
}

func (a *arguments) next(c byte) {
	if !a.begun && c > ' ' {
		a.begun, a.free = true, c != '{'
	}
	switch {
	case a.free: // nothing tells where it ends
	case a.afterMark:
		a.afterMark = false
	case a.inString:
		a.afterMark = c == '\\'
		a.inString = c != '"'
		a.whole = a.depth == 0 && !a.inString
	case c == '"':
		a.inString = true
	case c == '{' || c == '[':
		a.depth++
	case c == '}' || c == ']':
		a.depth--
		a.whole = a.depth <= 0
	}
}
