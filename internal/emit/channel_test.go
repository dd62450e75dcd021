package emit_test

import (
	"bufio"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// onChannel is a Channel as the Encoder of one response.
type onChannel struct {
	*emit.Channel
	id, responseID string
}

func (c onChannel) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	c.Channel.Encode(w, c.id, c.responseID, ev)
}

// framesWithID returns an Encoder of the response with the id responseID, whose
// frames have the id id.
func framesWithID(id string) emit.Encoder { return onChannel{emit.NewChannel(), id, responseID} }

// responseFirst is how the data of a channel's frames begins.
const responseFirst = `{"response_id":"` + responseID + `",`

func TestChannelFrames(t *testing.T) {
	for _, test := range []struct {
		name        string
		event       event.Event
		lines, rest string // before the data, and after the response's id
	}{
		{"text", text("a\"b\n"), "", `"text":"a\"b\n"}`},
		{"text of another choice", ofChoice(1, text("x")), "", `"choice":1,"text":"x"}`},
		{"reasoning", reasoning("hm"), "event: reasoning\n", `"text":"hm"}`},
		{"refusal", refusal("no"), "event: refusal\n", `"text":"no"}`},
		{
			"tool call opens", call(0, "call_1", "f", `{"a`), "event: tool_call\n",
			`"index":0,"id":"call_1","name":"f","arguments":"{\"a"}`,
		},
		{"tool call goes on", ofChoice(1, args(3, "}")), "event: tool_call\n", `"choice":1,"index":3,"arguments":"}"}`},
		{
			"done", done(event.Result{ProviderFinish: "end", Usage: &event.TokenUsage{Input: 1, Output: 2}}), "event: done\n",
			`"finish_reason":"stop","provider_finish_reason":"end","usage":{"input_tokens":1,"output_tokens":2}}`,
		},
		{
			"error", failed(502, event.CodeUpstreamError, "m", `{"a": 1}`), "event: error\n",
			`"error":{"type":"api_error","code":"upstream_error","message":"m","response_id":"` + responseID + `","upstream":{"a":1}}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.lines + "data: " + responseFirst + test.rest + "\n\n"
			for id, line := range map[string]string{"opaque.7": "id: opaque.7\n", "": ""} {
				got := encode(framesWithID(id), test.event)
				if got != line+want {
					t.Errorf("got  %q\nwant %q", got, line+want)
				}
				for _, f := range parseFrames(t, got) {
					object(t, f)
				}
			}
		})
	}
	if got := encode(framesWithID("x"), event.Event{Kind: event.Finish, Finish: "stop"}); got != "" {
		t.Errorf("a fact for readers only: %q", got)
	}
}

func TestChannelControlFrames(t *testing.T) {
	at := time.Date(2026, 1, 2, 1, 4, 5, 60_900_000, time.FixedZone("", 2*60*60))
	for _, test := range []struct {
		name string
		f    func(c *emit.Channel, w *bufio.Writer)
		want string
	}{
		{
			"started, in UTC", func(c *emit.Channel, w *bufio.Writer) { c.Started(w, "p1", responseID, at) },
			"id: p1\nevent: started\ndata: " + responseFirst + "\"started_at\":\"2026-01-01T23:04:05.060Z\"}\n\n",
		},
		{
			"started at a full second, without an id",
			func(c *emit.Channel, w *bufio.Writer) { c.Started(w, "", responseID, at.Truncate(time.Second)) },
			"event: started\ndata: " + responseFirst + "\"started_at\":\"2026-01-01T23:04:05.000Z\"}\n\n",
		},
		{
			"ended", func(c *emit.Channel, w *bufio.Writer) { c.Ended(w, "p2", responseID, "done", "m\"1") },
			"id: p2\nevent: ended\ndata: " + responseFirst + "\"status\":\"done\",\"model\":\"m\\\"1\"}\n\n",
		},
		{
			"ended without a model or an id", func(c *emit.Channel, w *bufio.Writer) { c.Ended(w, "", responseID, "failed", "") },
			"event: ended\ndata: " + responseFirst + "\"status\":\"failed\"}\n\n",
		},
		{
			"reconnect", func(c *emit.Channel, w *bufio.Writer) { c.Reconnect(w, "p3", 2316600*time.Microsecond, "reload") },
			"id: p3\nevent: reconnect\nretry: 2317\ndata: {\"reason\":\"reload\",\"retry_ms\":2317}\n\n",
		},
		{
			"reconnect without an id", func(c *emit.Channel, w *bufio.Writer) { c.Reconnect(w, "", time.Second, "exit") },
			"event: reconnect\nretry: 1000\ndata: {\"reason\":\"exit\",\"retry_ms\":1000}\n\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := written(func(w *bufio.Writer) { test.f(emit.NewChannel(), w) })
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			for _, f := range parseFrames(t, got) {
				object(t, f)
			}
		})
	}
}

func TestChannelHeader(t *testing.T) {
	got, want := http.Header{}, http.Header{}
	emit.NewChannel().Header(got)
	emit.NewText(emit.Options{ResponseID: responseID}).Header(want)
	want.Del("X-Response-Id")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A place in a channel of many responses is long.
func TestChannelTakesIDsOfAnyLength(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 1024)
	frames := parseFrames(t, encode(framesWithID(id), text("a"), text("b")))
	if len(frames) != 2 || frames[0].id != id || frames[1].id != id || object(t, frames[1])["text"] != "b" {
		t.Errorf("got %.80v", frames)
	}
}

// FuzzChannel looks for what breaks a frame, hides the response that it is of,
// or differs from what a client of that response alone is told.
func FuzzChannel(f *testing.F) {
	f.Add("Hello", responseID, "get_weather", 0)
	f.Add("\n\ndata: x\n\n", "\"}\r\n", "na\x00me\xff", 1)
	f.Add("\u2028", "", "", -1)
	f.Fuzz(func(t *testing.T, s, responseID, name string, choice int) {
		events := []event.Event{
			ofChoice(choice, text(s)), reasoning(s), refusal(s), call(choice, name, s, s), args(0, s),
			done(event.Result{ProviderFinish: name}), failed(502, event.Code(name), s, s),
		}
		stream := encode(onChannel{emit.NewChannel(), "p", responseID}, events...)
		stream += written(func(w *bufio.Writer) { emit.NewChannel().Ended(w, "p", responseID, name, s) })
		frames := parseFrames(t, stream)
		if len(frames) != len(events)+1 {
			t.Fatalf("%d frames", len(frames))
		}
		first := `{"response_id":"` + string(json.Append(nil, responseID)) + `",`
		alone := parseFrames(t, encode(emit.NewText(emit.Options{ResponseID: ""}), events...))
		for i, frame := range frames {
			object(t, frame)
			rest, ok := strings.CutPrefix(frame.data, first)
			if !ok {
				t.Fatalf("%q does not begin with %q", frame.data, first)
			}
			// The last is the error, in which Text would name the response.
			if i < len(alone)-1 && (frame.event != alone[i].event || "{"+rest != alone[i].data) {
				t.Fatalf("got %+v, alone %+v", frame, alone[i])
			}
		}
	})
}

func BenchmarkChannel(b *testing.B) {
	benchmarkDelta(b, framesWithID("5kQ0c1wDWnVYQ2zTnM8jXb"), text(" world"))
}
