package sse_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// event is an sse.Event that stays valid.
type event struct{ name, data string }

// split feeds the pieces to s, closes it and returns all events. Every piece
// is destroyed once Next has returned false.
func split(s sse.Splitter, pieces ...string) ([]event, error) {
	var events []event
	drain := func() {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			events = append(events, event{string(ev.Name), string(ev.Data)})
		}
	}
	for _, piece := range pieces {
		b := []byte(piece)
		s.Feed(b)
		drain()
		for i := range b {
			b[i] = '#'
		}
	}
	s.Close()
	drain()
	return events, s.Err()
}

// byteByByte cuts s into pieces of one byte.
func byteByByte(s string) []string {
	pieces := make([]string, len(s))
	for i := range pieces {
		pieces[i] = s[i : i+1]
	}
	return pieces
}

// referenceEvents is the standard's algorithm written down for a whole stream,
// with the two departures of Parser. It is the answer that Parser is compared
// with.
func referenceEvents(stream string, limit int) ([]event, error) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	if lines[len(lines)-1] != "" {
		lines = append(lines, "") // the end of the stream is a blank line
	}
	var events []event
	var name string
	var data []string
	for _, line := range lines {
		if line == "" {
			if data != nil {
				events = append(events, event{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		ignored := 0
		switch {
		case key == "":
		case key == "data":
			data = append(data, value)
		case key == "event":
			name = value
		case key == "error" && value != "":
			name, data = "error", append(data, value)
		case key == "error":
		default:
			ignored = len(line)
		}
		if len(name)+len(strings.Join(data, "\n")) > limit || ignored > limit {
			return events, sse.ErrEventTooLarge
		}
	}
	return events, nil
}

// referenceLines is the same for Lines.
func referenceLines(stream string, limit int) ([]event, error) {
	var events []event
	for line := range strings.SplitSeq(strings.TrimPrefix(stream, "\ufeff"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if len(line) > limit {
			return events, sse.ErrEventTooLarge
		}
		if strings.Trim(line, " \t\r") != "" {
			events = append(events, event{data: line})
		}
	}
	return events, nil
}

// referenceElements is the same for Array; ok is false where stream is not one
// valid JSON array.
func referenceElements(stream string, limit int) (events []event, err error, ok bool) {
	var elements []json.RawMessage
	stream = strings.TrimPrefix(stream, "\ufeff")
	if !strings.HasPrefix(strings.TrimLeft(stream, " \t\r\n"), "[") ||
		json.Unmarshal([]byte(stream), &elements) != nil {
		return nil, nil, false
	}
	for _, element := range elements {
		if len(element) > limit {
			return events, sse.ErrEventTooLarge, true
		}
		events = append(events, event{data: string(element)})
	}
	return events, nil, true
}

func wantEvents(t *testing.T, got, want []event) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("event %d: none, want %q", i, want[i])
		case i >= len(want):
			t.Fatalf("event %d: %q, want none", i, got[i])
		case got[i] != want[i]:
			t.Fatalf("event %d: %q, want %q", i, got[i], want[i])
		}
	}
}
