package sse_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// event is an sse.Event that stays valid. Of one that is reduced the data is not
// compared.
type event struct {
	name, data string
	reduced    bool
}

func (e event) String() string {
	if e.reduced {
		return e.name + ": reduced"
	}
	return e.name + ": " + e.data
}

// kept returns the event with this data, which is larger than the limit or not.
func kept(name, data string, limit int) event {
	if len(data) > limit {
		return event{name: name, reduced: true}
	}
	return event{name: name, data: data}
}

// split feeds the pieces to s, closes it and returns all events. Every piece
// is destroyed once Next has returned false.
func split(s sse.Splitter, pieces ...string) ([]event, error) {
	var events []event
	drain := func() {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if ev.Reduced {
				ev.Data = nil
			}
			events = append(events, event{string(ev.Name), string(ev.Data), ev.Reduced})
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
// with the departures of Parser. It is the answer that Parser is compared
// with.
func referenceEvents(stream string, limit int) []event {
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
		isBare := strings.HasPrefix(line, "{")
		if line == "" || isBare {
			if data != nil {
				events = append(events, kept(name, strings.Join(data, "\n"), limit))
			}
			if isBare {
				events = append(events, kept("", line, limit))
			}
			name, data = "", nil
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case key == "":
		case key == "data":
			data = append(data, value)
		case key == "event":
			name = value[:min(len(value), 256)]
		case key == "error" && value != "":
			name, data = "error", append(data, value)
		}
	}
	return events
}

// referenceLines is the same for Lines.
func referenceLines(stream string, limit int) []event {
	var events []event
	for line := range strings.SplitSeq(strings.TrimPrefix(stream, "\ufeff"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.Trim(line, " \t\r") != "" {
			events = append(events, kept("", line, limit))
		}
	}
	return events
}

// referenceElements is the same for Array; ok is false where stream is not one
// valid JSON array.
func referenceElements(stream string, limit int) (events []event, ok bool) {
	var elements []json.RawMessage
	stream = strings.TrimPrefix(stream, "\ufeff")
	if !strings.HasPrefix(strings.TrimLeft(stream, " \t\r\n"), "[") ||
		json.Unmarshal([]byte(stream), &elements) != nil {
		return nil, false
	}
	for _, element := range elements {
		events = append(events, kept("", string(element), limit))
	}
	return events, true
}

func wantEvents(t *testing.T, got, want []event) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
}
