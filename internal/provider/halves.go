package provider

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// A provider that cuts its text between the two halves of a surrogate pair,
// and writes each with an escape, sends two strings that are no text. The first
// half waits for the second one.

const (
	halfLen   = len(`\ud83d`)
	maxHalves = 64 // that wait at a time
)

// speaker is whose text a piece belongs to: one kind of output of one choice,
// and one tool call of it.
type speaker struct {
	kind   event.Kind
	choice int
	tool   int
}

// half is the first half of a character.
type half struct {
	of     speaker
	escape string
}

// isHighHalf reports whether raw, the inside of a JSON string of at least
// halfLen bytes, ends with the escape of the first half of a surrogate pair.
func isHighHalf(raw []byte) bool {
	escape := raw[len(raw)-halfLen:]
	if escape[0] != '\\' || escape[1] != 'u' || escape[2]|0x20 != 'd' {
		return false
	}
	switch escape[3] | 0x20 { // of a digit, the same digit
	case '8', '9', 'a', 'b':
	default:
		return false
	}
	solidi := 0 // in a row, with the one of the escape
	for i := len(raw) - halfLen; i >= 0 && raw[i] == '\\'; i-- {
		solidi++
	}
	return solidi%2 == 1
}

// joinHalf returns raw behind the half that has waited for it, if one has.
func (e *Events) joinHalf(from speaker, raw []byte) []byte {
	for i := range e.halves {
		if e.halves[i].of == from {
			joined := append([]byte(e.halves[i].escape), raw...)
			e.halves = slices.Delete(e.halves, i, i+1)
			return joined
		}
	}
	return raw
}

// flushHalves adds the halves that have waited in vain. Each is a U+FFFD.
func (e *Events) flushHalves() {
	for _, h := range e.halves {
		text := e.keep([]byte(h.escape))
		e.list = append(e.list, event.Event{Kind: h.of.kind, Choice: h.of.choice, Tool: event.Tool{Index: h.of.tool}, Text: text})
	}
	e.halves = nil
}
