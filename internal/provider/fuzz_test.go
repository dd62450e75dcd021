package provider_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// Whatever the bytes: no panic, at most one terminal event and exactly one
// where the response is not passed on, texts that are the inside of a JSON
// string, and nothing that depends on where the bytes were cut.
func FuzzReader(f *testing.F) {
	contentTypes := []string{
		"text/event-stream", "application/x-ndjson", "application/json", "text/plain", "",
		"application/vnd.amazon.eventstream",
	}
	requestPaths := []string{
		"", "/v1/chat/completions", "/v1/messages", "/api/chat", "/v1beta/m:streamGenerateContent",
		"/v1/responses", "/v1/completions", "/v2/chat", "/model/m/converse-stream", "/generate_stream",
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64, contentType, path, limit uint8) {
		o := provider.Options{
			ContentType: contentTypes[int(contentType)%len(contentTypes)],
			Path:        requestPaths[int(path)%len(requestPaths)],
			MaxEvent:    []int{1 << 20, 64, 256}[limit%3],
		}
		atOnce := provider.NewReader(o)
		want := readAll(t, atOnce, body, whole)
		checkEvents(t, atOnce, want)

		random := rand.New(rand.NewPCG(seed, 3))
		for _, split := range []func(int) int{func(int) int { return 1 }, randomPieces(random)} {
			r := provider.NewReader(o)
			got := readAll(t, r, body, split)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("cut in pieces: %+v\nat once: %+v", got, want)
			}
			if r.State() != atOnce.State() || r.Format() != atOnce.Format() || r.Model() != atOnce.Model() ||
				r.ResponseID() != atOnce.ResponseID() || r.Skipped() != atOnce.Skipped() {
				t.Errorf("cut in pieces: %d %q; at once: %d %q", r.State(), r.Format(), atOnce.State(), atOnce.Format())
			}
		}
		if atOnce.State() == provider.Opaque && o.MaxEvent > len(body) {
			passed, _ := passThrough(t, o, body, randomPieces(random))
			if passed != string(body) {
				t.Errorf("passed on %q", passed)
			}
		}
	})
}

// checkEvents checks the events of a whole body.
func checkEvents(t *testing.T, r *provider.Reader, events []event.Event) {
	t.Helper()
	if r.State() == provider.Undetermined {
		t.Error("still undetermined after Close")
	}
	terminal := 0
	for _, ev := range events {
		if ev.Kind.IsTerminal() {
			terminal++
			checkTerminal(t, ev)
		}
		if text := `"` + string(ev.Text) + `"`; !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			t.Errorf("text %s is not the inside of a JSON string", ev.Text)
		}
	}
	if r.Format() == "gemini" {
		checkArguments(t, events)
	}
	if want := r.State() == provider.Recognized; want != (terminal == 1) {
		t.Errorf("%d terminal events in state %d", terminal, r.State())
	}
}

// checkArguments checks that the arguments of a tool call are JSON, for a
// format whose arguments are put together here. A call that was cut off is
// excepted.
func checkArguments(t *testing.T, events []event.Event) {
	t.Helper()
	if len(events) == 0 || events[len(events)-1].Kind != event.Done {
		return
	}
	for _, choice := range []int{0, 1} {
		for _, c := range choiceOf(events, choice).calls {
			if !json.Valid([]byte(c.arguments)) {
				t.Errorf("arguments %s", c.arguments)
			}
		}
	}
}

func checkTerminal(t *testing.T, ev event.Event) {
	t.Helper()
	if (ev.Kind == event.Done) != (ev.Result != nil) || (ev.Kind == event.Failed) != (ev.Err != nil) {
		t.Errorf("a terminal event without what belongs to it: %+v", ev)
	}
	if ev.Err == nil {
		return
	}
	if ev.Err.Status < 400 || ev.Err.Status > 599 || ev.Err.Message == "" || !utf8.ValidString(ev.Err.Message) {
		t.Errorf("error %+v", ev.Err)
	}
	var object map[string]any
	if ev.Err.Upstream != nil && (json.Unmarshal(ev.Err.Upstream, &object) != nil || !utf8.Valid(ev.Err.Upstream)) {
		t.Errorf("the upstream's error is no JSON object: %s", ev.Err.Upstream)
	}
}

// TestRecordingsHoldWhatTheFuzzerChecks runs the checks above on real streams,
// of all formats.
func TestRecordingsHoldWhatTheFuzzerChecks(t *testing.T) {
	t.Parallel()
	for _, rec := range corpus.Load(t) {
		o := optionsOf(rec)
		for cut := 1; cut < len(rec.Body); cut += 1 + len(rec.Body)/4 {
			r := provider.NewReader(o)
			checkEvents(t, r, readAll(t, r, rec.Body[:cut], whole))
			if r.State() == provider.Opaque {
				continue
			}
			random := rand.New(rand.NewPCG(4, uint64(cut)))
			again := readAll(t, provider.NewReader(o), rec.Body[:cut], randomPieces(random))
			if !reflect.DeepEqual(again, readAll(t, provider.NewReader(o), rec.Body[:cut], whole)) {
				t.Errorf("%s, first %d bytes: the events depend on the pieces", rec.File, cut)
			}
		}
	}
}
