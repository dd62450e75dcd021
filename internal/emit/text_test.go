package emit_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

func TestTextFrames(t *testing.T) {
	const id = "id: " + responseID + ":1\n"
	usage := &event.TokenUsage{Input: 12, Output: 34}
	for _, test := range []struct {
		name  string
		event event.Event
		want  string
	}{
		{"text", text("Hel"), "data: {\"text\":\"Hel\"}\n\n"},
		{"text to escape", text("a\"b\nc"), "data: {\"text\":\"a\\\"b\\nc\"}\n\n"},
		{"text of another choice", ofChoice(1, text("x")), "data: {\"choice\":1,\"text\":\"x\"}\n\n"},
		{"reasoning", reasoning("hm"), "event: reasoning\ndata: {\"text\":\"hm\"}\n\n"},
		{"refusal", ofChoice(12, refusal("no")), "event: refusal\ndata: {\"choice\":12,\"text\":\"no\"}\n\n"},
		{
			"tool call opens", call(0, "call_1", "get_weather", `{"ci`),
			"event: tool_call\ndata: {\"index\":0,\"id\":\"call_1\",\"name\":\"get_weather\",\"arguments\":\"{\\\"ci\"}\n\n",
		},
		{
			"tool call goes on", args(3, `ty":1}`),
			"event: tool_call\ndata: {\"index\":3,\"arguments\":\"ty\\\":1}\"}\n\n",
		},
		{
			"tool call without id or arguments, of another choice", ofChoice(1, call(0, "", "now", "")),
			"event: tool_call\ndata: {\"choice\":1,\"index\":0,\"name\":\"now\",\"arguments\":\"\"}\n\n",
		},
		{
			"tool call with names to escape", call(0, "a\n\"", "b\xff", ""),
			"event: tool_call\ndata: {\"index\":0,\"id\":\"a\\n\\\"\",\"name\":\"b\uFFFD\",\"arguments\":\"\"}\n\n",
		},
		{
			"done", done(event.Result{ProviderFinish: "stop", Usage: usage}),
			"event: done\ndata: {\"finish_reason\":\"stop\",\"usage\":{\"input_tokens\":12,\"output_tokens\":34}}\n\n",
		},
		{
			"done without usage", done(event.Result{}),
			"event: done\ndata: {\"finish_reason\":\"stop\"}\n\n",
		},
		{
			"done in the provider's own words", done(event.Result{ProviderFinish: "end\"turn"}),
			"event: done\ndata: {\"finish_reason\":\"stop\",\"provider_finish_reason\":\"end\\\"turn\"}\n\n",
		},
		{
			"done with one count", done(event.Result{Usage: &event.TokenUsage{Input: -1, Output: 0}}),
			"event: done\ndata: {\"finish_reason\":\"stop\",\"usage\":{\"output_tokens\":0}}\n\n",
		},
		{
			"done with the other count", done(event.Result{Usage: &event.TokenUsage{Input: 7, Output: -1}}),
			"event: done\ndata: {\"finish_reason\":\"stop\",\"usage\":{\"input_tokens\":7}}\n\n",
		},
		{
			"done with neither", done(event.Result{Usage: &event.TokenUsage{Input: -1, Output: -1}}),
			"event: done\ndata: {\"finish_reason\":\"stop\"}\n\n",
		},
		{
			"done with several choices", done(event.Result{
				Finish: event.FinishLength, ProviderFinish: "length",
				Choices: []event.ChoiceFinish{{Choice: 0, Finish: event.FinishLength}, {Choice: 1, Finish: event.FinishStop}},
				Usage:   usage,
			}),
			"event: done\ndata: {\"finish_reason\":\"length\",\"choices\":[{\"choice\":0,\"finish_reason\":\"length\"}," +
				"{\"choice\":1,\"finish_reason\":\"stop\"}],\"usage\":{\"input_tokens\":12,\"output_tokens\":34}}\n\n",
		},
		{
			"error", failed(502, event.CodeUpstreamTruncated, "the body ended", ""),
			"event: error\ndata: {\"error\":{\"type\":\"api_error\",\"code\":\"upstream_truncated\"," +
				"\"message\":\"the body ended\",\"response_id\":\"" + responseID + "\"}}\n\n",
		},
		{"a fact for readers only", event.Event{Kind: event.Finish, Finish: "stop"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := encode(emit.NewText(emit.Options{ResponseID: responseID}), test.event)
			want := test.want
			if want != "" {
				want = id + want
			}
			if got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			for _, f := range parseFrames(t, got) {
				object(t, f)
			}
		})
	}
}

func TestTextWithoutResponseID(t *testing.T) {
	enc := emit.NewText(emit.Options{ResponseID: ""})
	if got := encode(enc, text("x")); got != "data: {\"text\":\"x\"}\n\n" {
		t.Errorf("got %q", got)
	}
	h := http.Header{}
	enc.Header(h)
	if _, ok := h["X-Response-Id"]; ok {
		t.Error("X-Response-Id without an id")
	}
}

func TestTextHeader(t *testing.T) {
	h := http.Header{"Server": {"upstream"}, "Cache-Control": {"public"}}
	emit.NewText(emit.Options{ResponseID: responseID}).Header(h)
	want := http.Header{
		"Server":            {"upstream"},
		"Content-Type":      {"text/event-stream; charset=utf-8"},
		"Cache-Control":     {"no-cache, no-transform"},
		"X-Accel-Buffering": {"no"},
		"Incremental":       {"?1"},
		"X-Response-Id":     {responseID},
	}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %v, want %v", h, want)
	}
}

func TestTextControlFrames(t *testing.T) {
	for _, test := range []struct {
		name string
		id   string
		f    func(t *emit.Text, w *bufio.Writer)
		want string
	}{
		{
			"reconnect", responseID,
			func(t *emit.Text, w *bufio.Writer) { t.Reconnect(w, 41, 2316600*time.Microsecond, "reload") },
			"id: " + responseID + ":41\nevent: reconnect\nretry: 2317\ndata: {\"reason\":\"reload\",\"retry_ms\":2317}\n\n",
		},
		{
			"reconnect before the first event", responseID,
			func(t *emit.Text, w *bufio.Writer) { t.Reconnect(w, 0, time.Second, "exit") },
			"id: " + responseID + ":0\nevent: reconnect\nretry: 1000\ndata: {\"reason\":\"exit\",\"retry_ms\":1000}\n\n",
		},
		{
			"reconnect of a request that was turned away", "",
			func(t *emit.Text, w *bufio.Writer) { t.Reconnect(w, 0, 5*time.Second, "busy") },
			"event: reconnect\nretry: 5000\ndata: {\"reason\":\"busy\",\"retry_ms\":5000}\n\n",
		},
		{
			"gap", responseID,
			func(t *emit.Text, w *bufio.Writer) { t.Gap(w, 500, 436) },
			"id: " + responseID + ":500\nevent: gap\ndata: {\"dropped\":436}\n\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := written(func(w *bufio.Writer) { test.f(emit.NewText(emit.Options{ResponseID: test.id}), w) })
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			parseFrames(t, got)
		})
	}
}

// With a second newline the comment would be an event without data.
func TestHeartbeatIsOneLine(t *testing.T) {
	if got := written(emit.Heartbeat); got != ": ping\n" {
		t.Errorf("got %q", got)
	}
}

func TestTextKeepsEveryText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var (
			events []event.Event
			want   strings.Builder
		)
		for range rng.IntN(20) {
			s := randomText(rng)
			want.WriteString(s)
			events = append(events, text(s))
		}
		var got strings.Builder
		for _, f := range parseFrames(t, encode(emit.NewText(emit.Options{ResponseID: responseID}), events...)) {
			got.WriteString(object(t, f)["text"].(string))
		}
		if got.String() != want.String() {
			t.Fatalf("got %q, want %q", got.String(), want.String())
		}
	}
}

// randomText returns a text, not empty, of characters that are hard on
// escaping and framing.
func randomText(rng *rand.Rand) string {
	alphabet := []rune("ab \"\\/\n\r\t\x00\x1f\x7f{}:é你🙂\u2028\u0085")
	s := make([]rune, 1+rng.IntN(30))
	for i := range s {
		s[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(s)
}

func FuzzText(f *testing.F) {
	f.Add("Hello", "call_1", "get_weather", 0, uint8(0))
	f.Add("a\"b\\c\n\r\x00\xff", "id\n\n", "na\r\nme", 1, uint8(2))
	f.Add("\u2028data: x\n\ndata: y", "", "", -1, uint8(3))
	f.Fuzz(func(t *testing.T, s, id, name string, choice int, kind uint8) {
		ev := event.Event{
			Kind: event.Text + event.Kind(kind%4), Choice: choice, Text: json.Append(nil, s),
			Tool: event.Tool{Index: choice, ID: id, Name: name},
		}
		frames := parseFrames(t, encode(emit.NewText(emit.Options{ResponseID: responseID}),
			ev, done(event.Result{ProviderFinish: name, Finish: event.FinishOther})))
		if len(frames) != 2 {
			t.Fatalf("%d frames", len(frames))
		}
		member := "text"
		if ev.Kind == event.ToolCall {
			member = "arguments"
		}
		got, plain := object(t, frames[0])[member], string(json.AppendPlain(nil, ev.Text))
		if got != plain {
			t.Fatalf("got %q, want %q", got, plain)
		}
		object(t, frames[1])
	})
}

func BenchmarkText(b *testing.B) {
	benchmarkDelta(b, emit.NewText(emit.Options{ResponseID: responseID}), text(" world"))
}

// benchmarkDelta measures one delta in the middle of a response.
func benchmarkDelta(b *testing.B, enc emit.Encoder, ev event.Event) {
	b.Helper()
	w := bufio.NewWriter(io.Discard)
	enc.Encode(w, 1, &ev)
	b.ReportAllocs()
	index := 1000
	for b.Loop() {
		index++
		enc.Encode(w, index, &ev)
	}
	allocs := testing.AllocsPerRun(1000, func() { enc.Encode(w, index, &ev) })
	if allocs != 0 {
		b.Errorf("%v allocations for a delta", allocs)
	}
}
