package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	escaped "github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// A batch is
//
//	version      one byte
//	first        index of its first event
//	runs         how many there are
//	for each run, which is a sequence of events that differ only in their texts:
//	    kind     one byte
//	    choice
//	    only for tool calls: index of the call, and the lengths and bytes of
//	    the id and the name that its first event has
//	    count    of its events
//	    lengths  of their texts
//	    bytes    of them, one text behind the other
//	terminal     JSON up to the end; empty where the response goes on
//
// All numbers are varints. A log that is compacted is one batch, so that there
// is one format to read.
const version = 1

// terminal is the JSON of a terminal event. Members that a newer replica writes
// and this one does not know are ignored.
type terminal struct {
	Result *event.Result `json:"result,omitempty"`
	Error  *event.Error  `json:"error,omitempty"`
}

// Encode appends the events to dst as one batch; the first one has the index
// first. Only the last one may be terminal.
func Encode(dst []byte, first int, events []event.Event) ([]byte, error) {
	outputs := events
	var last *event.Event
	if n := len(events); n > 0 && events[n-1].Kind.IsTerminal() {
		outputs, last = events[:n-1], &events[n-1]
	}
	dst = append(dst, version)
	dst = appendInt(dst, first)
	at := len(dst)
	runs := 0
	for rest := outputs; len(rest) > 0; runs++ {
		n := runLen(rest)
		dst = appendRun(dst, rest[:n])
		rest = rest[n:]
	}
	dst = slices.Insert(dst, at, binary.AppendUvarint(nil, uint64(runs))...)
	if last == nil {
		return dst, nil
	}
	end, err := json.Marshal(terminal{last.Result, last.Err})
	return append(dst, end...), err
}

// runLen is how many of the events differ from the first one only in their texts.
func runLen(events []event.Event) int {
	first := &events[0]
	for i := 1; i < len(events); i++ {
		ev := &events[i]
		if ev.Kind != first.Kind || ev.Choice != first.Choice || ev.Tool.Index != first.Tool.Index ||
			ev.Tool.ID != "" || ev.Tool.Name != "" {
			return i
		}
	}
	return len(events)
}

func appendRun(dst []byte, events []event.Event) []byte {
	first := &events[0]
	dst = append(dst, byte(first.Kind))
	dst = appendInt(dst, first.Choice)
	if first.Kind == event.ToolCall {
		dst = appendInt(dst, first.Tool.Index)
		dst = appendInt(dst, len(first.Tool.ID))
		dst = append(dst, first.Tool.ID...)
		dst = appendInt(dst, len(first.Tool.Name))
		dst = append(dst, first.Tool.Name...)
	}
	dst = appendInt(dst, len(events))
	for i := range events {
		dst = appendInt(dst, len(events[i].Text))
	}
	for i := range events {
		dst = append(dst, events[i].Text...)
	}
	return dst
}

func appendInt(dst []byte, n int) []byte {
	return binary.AppendUvarint(dst, uint64(n)) //nolint:gosec // lengths, counts and indexes are not negative
}

// Decode reads a batch. The texts of the events are slices of data. The error is
// ErrCorrupt.
func Decode(data []byte) (first int, events []event.Event, err error) {
	d := decoder{rest: data}
	if d.byte() != version {
		d.failed = true
	}
	first = d.int()
	for range d.count() {
		events = d.run(events)
	}
	if !d.failed && len(d.rest) > 0 {
		events = d.terminal(events)
	}
	if d.failed || first < 1 || first > math.MaxInt32 {
		return 0, nil, fmt.Errorf("%w: batch of %d bytes", ErrCorrupt, len(data))
	}
	return first, events, nil
}

// decoder takes a batch apart. Once it has failed it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) byte() byte {
	b := d.bytes(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (d *decoder) bytes(n int) []byte {
	if d.failed || n > len(d.rest) {
		d.failed = true
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) int() int {
	if d.failed {
		return 0
	}
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > math.MaxInt32 {
		d.failed = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

// count reads how many of something there are that takes a byte or more.
func (d *decoder) count() int {
	n := d.int()
	if n > len(d.rest) {
		d.failed = true
		return 0
	}
	return n
}

func (d *decoder) run(events []event.Event) []event.Event {
	ev := event.Event{Kind: event.Kind(d.byte()), Choice: d.int()}
	if ev.Kind == event.ToolCall {
		ev.Tool = event.Tool{Index: d.int(), ID: d.string(), Name: d.string()}
	}
	n := d.count()
	lens := make([]int, n)
	for i := range lens {
		lens[i] = d.int()
	}
	if d.failed || !ev.Kind.IsOutput() || n == 0 {
		d.failed = true
		return nil
	}
	for _, n := range lens {
		ev.Text = d.bytes(n)
		if (n == 0 && ev.Kind != event.ToolCall) || !escaped.Valid(ev.Text) {
			d.failed = true
			return nil
		}
		events = append(events, ev)
		ev.Tool.ID, ev.Tool.Name = "", ""
	}
	return events
}

func (d *decoder) string() string {
	b := d.bytes(d.count())
	if !utf8.Valid(b) {
		d.failed = true
	}
	return string(b)
}

func (d *decoder) terminal(events []event.Event) []event.Event {
	var t terminal
	err := json.Unmarshal(d.rest, &t)
	switch {
	case err != nil, (t.Result == nil) == (t.Error == nil):
		d.failed = true
		return nil
	case t.Result != nil:
		return append(events, event.Event{Kind: event.Done, Result: t.Result})
	case len(t.Error.Upstream) > 0 && !compactObject(t.Error.Upstream):
		d.failed = true
		return nil
	}
	return append(events, event.Event{Kind: event.Failed, Err: t.Error})
}

// compactObject reports whether b is a JSON object on one line: it goes into
// frames as it is.
func compactObject(b []byte) bool {
	return b[0] == '{' && json.Valid(b) && !bytes.ContainsAny(b, "\r\n")
}
