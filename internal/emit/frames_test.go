package emit_test

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

const responseID = "5kQ0c1wDWnVYQ2zTnM8jXb"

// encode returns what an encoder makes of events with the indexes 1, 2, ….
func encode(enc emit.Encoder, events ...event.Event) string {
	return encodeFrom(enc, 1, events...)
}

func encodeFrom(enc emit.Encoder, first int, events ...event.Event) string {
	var out bytes.Buffer
	// the smallest that bufio knows, so that every frame crosses its end
	w := bufio.NewWriterSize(&out, 16)
	for i := range events {
		enc.Encode(w, first+i, &events[i])
	}
	_ = w.Flush()
	return out.String()
}

// written returns what f writes.
func written(f func(w *bufio.Writer)) string {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	f(w)
	_ = w.Flush()
	return out.String()
}

func delta(kind event.Kind, text string) event.Event {
	return event.Event{Kind: kind, Text: json.Append(nil, text)}
}

func text(s string) event.Event      { return delta(event.Text, s) }
func reasoning(s string) event.Event { return delta(event.Reasoning, s) }
func refusal(s string) event.Event   { return delta(event.Refusal, s) }

// call is the fragment that opens a tool call, args one that goes on with it.
func call(index int, id, name, arguments string) event.Event {
	ev := delta(event.ToolCall, arguments)
	ev.Tool = event.Tool{Index: index, ID: id, Name: name}
	return ev
}

func args(index int, arguments string) event.Event { return call(index, "", "", arguments) }

func ofChoice(choice int, ev event.Event) event.Event {
	ev.Choice = choice
	return ev
}

func done(r event.Result) event.Event {
	if r.Finish == "" {
		r.Finish = event.FinishStop
	}
	return event.Event{Kind: event.Done, Result: &r}
}

func failed(status int, code event.Code, message, upstream string) event.Event {
	return event.Event{Kind: event.Failed, Err: &event.Error{
		Code: code, Status: status, Message: message, Upstream: []byte(upstream),
	}}
}

// frame is one server-sent event.
type frame struct{ id, event, retry, data string }

// parseFrames reads server-sent events and fails the test on anything that the
// most fragile clients do not take: a frame without data or with two data
// lines, a field that is not known, a byte that some take for a line break.
func parseFrames(tb testing.TB, stream string) []frame {
	tb.Helper()
	if stream != "" && !strings.HasSuffix(stream, "\n\n") {
		tb.Fatalf("the last frame is not whole: %q", stream)
	}
	var frames []frame
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if block == "" {
			continue
		}
		var f frame
		for line := range strings.SplitSeq(block, "\n") {
			name, value, found := strings.Cut(line, ": ")
			field := map[string]*string{"id": &f.id, "event": &f.event, "retry": &f.retry, "data": &f.data}[name]
			if !found || field == nil || *field != "" || strings.ContainsAny(line, "\r\x00\v\f") {
				tb.Fatalf("line %q in %q", line, block)
			}
			*field = value
		}
		if f.data == "" {
			tb.Fatalf("frame without data: %q", block)
		}
		frames = append(frames, f)
	}
	return frames
}

// object decodes the data of a frame.
func object(tb testing.TB, f frame) map[string]any {
	tb.Helper()
	var m map[string]any
	if err := stdjson.Unmarshal([]byte(f.data), &m); err != nil {
		tb.Fatalf("%q: %v", f.data, err)
	}
	return m
}
