package provider_test

import (
	"encoding/json"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// readAll feeds a body in pieces whose sizes split tells, closes the Reader
// and returns all events.
func readAll(tb testing.TB, r *provider.Reader, body []byte, split func(left int) int) []event.Event {
	tb.Helper()
	var all []event.Event
	for len(body) > 0 {
		n := min(split(len(body)), len(body))
		piece := append([]byte(nil), body[:n]...)
		if events := r.Feed(piece); len(events) > 0 { // most single bytes complete none
			all = appendEvents(tb, all, events)
		}
		r.Release()
		for i := range piece {
			piece[i] = '#' // the Reader must not hold on to it
		}
		body = body[n:]
	}
	return appendEvents(tb, all, r.Close(true))
}

// appendEvents copies events, whose texts the next call overwrites, and checks
// what holds for every one of them.
func appendEvents(tb testing.TB, all, events []event.Event) []event.Event {
	tb.Helper()
	for _, ev := range events {
		if !ev.Kind.IsOutput() && !ev.Kind.IsTerminal() {
			tb.Errorf("a Reader returned an event of kind %d", ev.Kind)
		}
		if len(all) > 0 && all[len(all)-1].Kind.IsTerminal() {
			tb.Error("an event after the terminal one")
		}
		if ev.Kind.IsOutput() && ev.Kind != event.ToolCall && len(ev.Text) == 0 {
			tb.Error("an empty delta")
		}
		ev.Text = append([]byte(nil), ev.Text...)
		all = append(all, ev)
	}
	return all
}

// readString reads a whole body with the given path as server-sent events, or
// as lines of JSON where it begins with one.
func readString(tb testing.TB, path, body string) []event.Event {
	tb.Helper()
	r := provider.NewReader(provider.Options{Path: path, ContentType: "text/event-stream"})
	return readAll(tb, r, []byte(body), func(left int) int { return left })
}

// answer is what a client would put together from events.
type answer struct {
	text, reasoning, refusal string // of choice 0
	calls                    []call // of choice 0
	result                   *event.Result
	err                      *event.Error
}

type call struct{ id, name, arguments string }

func answerOf(events []event.Event) answer { return choiceOf(events, 0) }

// choiceOf returns the answer of one choice.
func choiceOf(events []event.Event, choice int) answer {
	var a answer
	for _, ev := range events {
		switch {
		case ev.Kind == event.Done:
			a.result = ev.Result
		case ev.Kind == event.Failed:
			a.err = ev.Err
		case ev.Choice != choice:
		case ev.Kind == event.Text:
			a.text += unescape(ev.Text)
		case ev.Kind == event.Reasoning:
			a.reasoning += unescape(ev.Text)
		case ev.Kind == event.Refusal:
			a.refusal += unescape(ev.Text)
		case ev.Kind == event.ToolCall:
			a.addTool(ev)
		}
	}
	return a
}

func (a *answer) addTool(ev event.Event) {
	if ev.Tool.Index == len(a.calls) {
		a.calls = append(a.calls, call{id: ev.Tool.ID, name: ev.Tool.Name})
	} else if ev.Tool.ID != "" || ev.Tool.Name != "" {
		panic("a tool call was opened twice or out of order")
	}
	a.calls[ev.Tool.Index].arguments += unescape(ev.Text)
}

// unescape returns what an event's text stands for.
func unescape(text []byte) string {
	var s string
	if err := json.Unmarshal([]byte(`"`+string(text)+`"`), &s); err != nil {
		panic("no escaped text: " + string(text))
	}
	return s
}
