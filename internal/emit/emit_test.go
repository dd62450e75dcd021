package emit_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

func TestNew(t *testing.T) {
	want := map[string]emit.Encoder{
		"text": &emit.Text{}, "plain": &emit.Plain{}, "openai": &emit.OpenAI{},
		"anthropic": &emit.Anthropic{}, "ai-sdk": &emit.AISDK{},
	}
	if len(emit.Dialects()) != len(want) {
		t.Errorf("dialects: %v", emit.Dialects())
	}
	for _, dialect := range emit.Dialects() {
		enc, err := emit.New(dialect, emit.Options{ResponseID: responseID})
		if err != nil || reflect.TypeOf(enc) != reflect.TypeOf(want[dialect]) {
			t.Errorf("%s: %T, %v", dialect, enc, err)
		}
	}
	for _, dialect := range []string{"", "Text", emit.DialectPassthrough} {
		if enc, err := emit.New(dialect, emit.Options{}); enc != nil || !errors.Is(err, emit.ErrUnknownDialect) {
			t.Errorf("%q: %T, %v", dialect, enc, err)
		}
	}
}

func TestNewHandsOptionsOn(t *testing.T) {
	end := done(event.Result{Usage: &event.TokenUsage{Input: 1, Output: 2}})
	o := emit.Options{ResponseID: responseID, Model: "m", IncludeUsage: true}
	for dialect, want := range map[string]message{
		emit.DialectText:      {finish: "stop"},
		emit.DialectOpenAI:    {finish: "stop", model: "m", usage: 2},
		emit.DialectAnthropic: {finish: "end_turn", model: "m", usage: 2},
		emit.DialectAISDK:     {finish: "stop"},
	} {
		enc, err := emit.New(dialect, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := readers[dialect](t, encode(enc, end)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", dialect, got, want)
		}
	}
}

// A client of plain, openai or anthropic could take a clean end for success.
func TestAborts(t *testing.T) {
	fail, end := failed(504, event.CodeTotalTimeout, "m", ""), done(event.Result{})
	for _, dialect := range emit.Dialects() {
		enc, err := emit.New(dialect, emit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Contains([]string{"plain", "openai", "anthropic"}, dialect)
		if got := emit.Aborts(enc, &fail); got != want {
			t.Errorf("%s: %v after an error", dialect, got)
		}
		if emit.Aborts(enc, &end) {
			t.Errorf("%s: aborts after a clean end", dialect)
		}
	}
}

// Every dialect brings every byte of what it carries to its client, wherever
// in the log it begins and however events are merged.
func TestNothingIsLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		events, want := randomResponse(rng)
		for dialect, read := range readers {
			enc, err := emit.New(dialect, emit.Options{ResponseID: responseID})
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, encodeFrom(enc, 1+rng.IntN(1000), merged(rng, events)...))
			got.finish = ""
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\ngot  %+v\nwant %+v\nin   %s", dialect, got, want, encode(emit.NewText(emit.Options{ResponseID: ""}), events...))
			}
		}
	}
}

// randomResponse returns the events of a response, with text, reasoning and
// the fragments of several calls in any order, and what they make together.
func randomResponse(rng *rand.Rand) ([]event.Event, message) {
	var (
		events []event.Event
		want   message
		rest   []string // of the arguments of each call
	)
	for range rng.IntN(25) {
		switch rng.IntN(5) {
		case 0:
			s := randomText(rng)
			want.text += s
			events = append(events, text(s))
		case 1:
			s := randomText(rng)
			want.reasoning += s
			events = append(events, reasoning(s))
		case 2:
			i := len(rest)
			arguments := string(json.Append([]byte(`{"[\"`), randomText(rng))) + `":[{"}":1}]}`
			rest = append(rest, arguments)
			want.calls = append(want.calls, toolCall{id: "id" + strconv.Itoa(i), name: "f", arguments: arguments})
			events = append(events, call(i, "id"+strconv.Itoa(i), "f", ""))
		default:
			if len(rest) == 0 {
				continue
			}
			i := rng.IntN(len(rest))
			if runes := []rune(rest[i]); len(runes) > 0 {
				cut := 1 + rng.IntN(len(runes))
				events = append(events, args(i, string(runes[:cut])))
				rest[i] = string(runes[cut:])
			}
		}
	}
	for i, s := range rest {
		if s != "" {
			events = append(events, args(i, s))
		}
	}
	finish := event.FinishStop
	if len(rest) > 0 {
		finish = event.FinishToolCalls
	}
	return append(events, done(event.Result{Finish: finish})), want
}

// merged joins some neighbours, as a log does for a client that catches up.
func merged(rng *rand.Rand, events []event.Event) []event.Event {
	var out []event.Event
	for _, ev := range events {
		if n := len(out); n > 0 && ev.Kind.IsOutput() && out[n-1].Kind == ev.Kind &&
			(ev.Kind != event.ToolCall || out[n-1].Tool.Index == ev.Tool.Index) && rng.IntN(2) == 0 {
			out[n-1].Text = slices.Concat(out[n-1].Text, ev.Text)
			continue
		}
		out = append(out, ev)
	}
	return out
}

// FuzzDialects looks for a text or a name that breaks a frame.
func FuzzDialects(f *testing.F) {
	f.Add("Hello", "call_1", "get_weather", `{"a":1}`)
	f.Add("\n\ndata: [DONE]\n\n", "\"}", "\r\n", "{\n\"a\":\"\xff\"}")
	f.Add("\u2028\x00\\", "", "", "]}}{")
	f.Fuzz(func(t *testing.T, s, id, name, arguments string) {
		events := []event.Event{
			delta(event.Refusal, s), call(0, id, name, arguments), reasoning(s), call(1, name, id, ""), text(s), args(1, arguments),
			done(event.Result{Finish: event.FinishToolCalls, ProviderFinish: name}),
			failed(502, event.Code(id), s, arguments),
		}
		for _, dialect := range emit.Dialects() {
			enc, err := emit.New(dialect, emit.Options{ResponseID: responseID, Model: name})
			if err != nil {
				t.Fatal(err)
			}
			stream := encode(enc, events...)
			if dialect == emit.DialectPlain {
				continue
			}
			for _, frame := range parseFrames(t, stream) {
				if frame.data != "[DONE]" {
					object(t, frame)
				}
			}
		}
	})
}
