package provider

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// geminiArguments makes JSON text of the partial arguments of a tool call.
// Each is a value, or the next piece of a string, and the path (RFC 9535) of
// where it stands in the arguments:
//
//	{"jsonPath": "$.recipe.steps[0].text", "stringValue": "Bo", "willContinue": true}
//
// The values come in the order in which the model writes them, which is that
// of the text, so that the text can be passed on as far as it goes. A value for
// an object or array that has been left cannot be put there any more.
type geminiArguments struct {
	path     []pathStep // to the last value
	raw      []byte     // the same as it was sent
	inString bool       // the last value is a string that may go on
	keys     int        // bytes of the keys that are remembered
	text     []byte     // scratch
}

// pathStep is one step of a path: into an object, or into an array.
type pathStep struct {
	key   string
	index int // in an array, else noIndex
	// used has the keys that the object has had so far.
	used []string
}

// What a path may have, and how much is remembered of the keys of the objects
// that are open, in bytes.
const (
	maxPathSteps = 64
	maxPathKeys  = 64 << 10
)

// add returns the JSON text that partial arguments, an array or nothing, add to
// what came before. It reports whether they can be understood. The text is
// valid until the next call.
func (g *geminiArguments) add(partial []byte) ([]byte, bool) {
	g.text = g.text[:0]
	c := json.MakeCursor(partial)
	for ok := partial != nil && c.Open('['); ok; ok = c.More('[') {
		var path, value []byte
		isString := false
		for ok := c.Open('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "jsonPath":
				path = c.Str()
			case "stringValue":
				value, isString = c.Text(), true
			case "numberValue", "boolValue":
				value = c.Raw()
			case "nullValue":
				c.Skip()
				value = []byte("null")
			default:
				c.Skip()
			}
		}
		if c.Bad() || json.IsElided(value) || !g.put(path, value, isString) {
			return nil, false
		}
	}
	return g.text, true
}

// end returns the text that closes what is open.
func (g *geminiArguments) end() []byte {
	g.text = g.text[:0]
	if len(g.path) == 0 {
		return append(g.text, "{}"...)
	}
	g.leave(0)
	g.close(g.path[0])
	return g.text
}

// put writes a value to the place that a path names, and reports whether it
// can be there. value is the inside of a string, or another scalar; one that is
// nil is none.
func (g *geminiArguments) put(path, value []byte, isString bool) bool {
	if g.inString && isString && bytes.Equal(path, g.raw) { // the usual case
		g.text = append(g.text, value...)
		return true
	}
	steps := parsePath(json.Unquote(path))
	if steps == nil || steps[0].index != noIndex {
		return false
	}
	if value == nil {
		return true
	}
	shared := 0
	for shared < min(len(steps), len(g.path)) && steps[shared].same(g.path[shared]) {
		shared++
	}
	if shared == len(steps) || shared == len(g.path) && shared > 0 {
		if len(steps) != len(g.path) || !g.inString || !isString {
			return false // two values in one place, or a value that is an object too
		}
		g.text = append(g.text, value...)
		return true
	}
	if len(g.path) > 0 {
		g.leave(shared)
		g.text = append(g.text, ',')
	} else {
		g.text = append(g.text, '{')
	}
	for i := shared; i < len(steps); i++ {
		if !g.enter(i, steps[i], i == shared) {
			return false
		}
	}
	if isString {
		g.text = append(g.text, '"')
	}
	g.text = append(g.text, value...)
	g.inString = isString
	g.raw = append(g.raw[:0], path...)
	return true
}

// leave closes the last value and what is open around it, down to the object
// or array of the step with this index.
func (g *geminiArguments) leave(step int) {
	if g.inString {
		g.text = append(g.text, '"')
		g.inString = false
	}
	for i := len(g.path) - 1; i > step; i-- {
		g.close(g.path[i])
		for _, key := range g.path[i].used {
			g.keys -= len(key)
		}
	}
	g.path = g.path[:step+1]
}

// close closes the object or array of a step.
func (g *geminiArguments) close(step pathStep) {
	if step.index == noIndex {
		g.text = append(g.text, '}')
	} else {
		g.text = append(g.text, ']')
	}
}

// enter writes what comes before the value at a step: a bracket, unless it is
// open already, and the key.
func (g *geminiArguments) enter(i int, step pathStep, isOpen bool) bool {
	next := 0
	if isOpen && i < len(g.path) {
		last := g.path[i]
		if (last.index == noIndex) != (step.index == noIndex) {
			return false
		}
		step.used = last.used
		next = last.index + 1
		g.path = g.path[:i]
	}
	if step.index != noIndex {
		if step.index != next {
			return false
		}
		if !isOpen {
			g.text = append(g.text, '[')
		}
		g.path = append(g.path, step)
		return true
	}
	g.keys += len(step.key)
	if slices.Contains(step.used, step.key) || g.keys > maxPathKeys {
		return false
	}
	step.used = append(step.used, step.key)
	if !isOpen {
		g.text = append(g.text, '{')
	}
	g.text = append(g.text, '"')
	g.text = json.Append(g.text, step.key)
	g.text = append(g.text, `":`...)
	g.path = append(g.path, step)
	return true
}

// same reports whether two steps lead to the same place.
func (s pathStep) same(other pathStep) bool { return s.key == other.key && s.index == other.index }

// parsePath returns the steps of a path that names one place: "$", then names
// as .name or ['name'] and indexes as [0]. It returns nil for any other.
func parsePath(path string) []pathStep {
	rest, ok := strings.CutPrefix(path, "$")
	var steps []pathStep
	for ok && rest != "" && len(steps) < maxPathSteps {
		step := pathStep{index: noIndex}
		switch {
		case rest[0] == '.':
			end := 1
			for end < len(rest) && rest[end] != '.' && rest[end] != '[' {
				end++
			}
			step.key, rest = rest[1:end], rest[end:]
			ok = step.key != ""
		case len(rest) > 1 && rest[0] == '[' && (rest[1] == '\'' || rest[1] == '"'):
			step.key, rest, ok = quotedName(rest[2:], rest[1])
		case rest[0] == '[':
			var digits string
			digits, rest, ok = strings.Cut(rest[1:], "]")
			index, err := strconv.ParseUint(digits, 10, 31)
			ok = ok && err == nil
			step.index = int(index)
		default:
			ok = false
		}
		steps = append(steps, step)
	}
	if !ok || rest != "" {
		return nil
	}
	return steps
}

// quotedName reads a name up to its closing quote and bracket.
func quotedName(s string, quote byte) (name, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++ // of the escapes, those of quotes and of the escape itself
			b.WriteByte(s[i])
		case s[i] == quote:
			rest, ok = strings.CutPrefix(s[i+1:], "]")
			return b.String(), rest, ok
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
