package provider_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// streamCase is a stream of our own making in testdata/streams, in the directory
// of its format, and the answer that must come of it: name.want.json beside
// name.sse, name.ndjson, name.array or name.frames.
type streamCase struct {
	name string
	body []byte

	// What is known beforehand.
	Path        string `json:"path"`
	ContentType string `json:"content_type"`
	Choices     int    `json:"choices"`
	MaxEvent    int    `json:"max_event"`
	Aborted     bool   `json:"aborted"` // the body did not end as HTTP has it

	streamAnswer
}

// streamAnswer is what must come of a stream. What is left out must not come.
type streamAnswer struct {
	Raw    bool   `json:"raw"` // it passes as it is
	Format string `json:"format"`
	Model  string `json:"model"`
	ID     string `json:"id"`
	streamChoice
	Others []streamChoice `json:"others"` // the choices after choice 0

	Finish         event.FinishReason   `json:"finish"`
	ProviderFinish string               `json:"provider_finish"`
	Finishes       []event.FinishReason `json:"finishes"` // of every choice, where there are several
	Usage          *streamUsage         `json:"usage"`
	Silent         int                  `json:"silent"` // outputs that are no events
	Skipped        int                  `json:"skipped"`
	Error          *streamError         `json:"error"`
}

// streamChoice is the output of one choice.
type streamChoice struct {
	Text      string       `json:"text"`
	Reasoning string       `json:"reasoning"`
	Refusal   string       `json:"refusal"`
	ToolCalls []streamCall `json:"tool_calls"`
}

type streamCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type streamUsage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Reasoning  int64 `json:"reasoning"`
}

type streamError struct {
	Code     event.Code      `json:"code"`
	Status   int             `json:"status"`
	Message  string          `json:"message"`
	Upstream json.RawMessage `json:"upstream"`
}

// streamCases returns every stream in testdata/streams.
func streamCases(tb testing.TB) []streamCase {
	tb.Helper()
	answers, err := filepath.Glob("testdata/streams/*/*.want.json")
	if err != nil || len(answers) == 0 {
		tb.Fatalf("no streams: %v", err)
	}
	cases := make([]streamCase, 0, len(answers))
	for _, file := range answers {
		var c streamCase
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		base := strings.TrimSuffix(file, ".want.json")
		c.name = filepath.ToSlash(strings.TrimPrefix(base, filepath.Join("testdata", "streams")+string(filepath.Separator)))
		bodies, err := filepath.Glob(base + ".*")
		bodies = slices.DeleteFunc(bodies, func(body string) bool { return body == file })
		if err != nil || len(bodies) != 1 {
			tb.Fatalf("%s: its streams are %v, %v", file, bodies, err)
		}
		if c.body, err = os.ReadFile(bodies[0]); err != nil {
			tb.Fatal(err)
		}
		if filepath.Ext(bodies[0]) == ".frames" {
			c.body = framesOf(tb, c.body)
		}
		cases = append(cases, c)
	}
	return cases
}

// framesOf returns the binary frames that a text stands for: each line is one,
// its name and its payload. The payload of a chunk is the event within it, and a
// name that ends in Exception is that of an exception.
func framesOf(tb testing.TB, text []byte) []byte {
	tb.Helper()
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		name, payload, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case !ok:
			tb.Fatalf("no frame: %s", line)
		case name == "chunk":
			b.WriteString(invokeFrames(payload))
		case name == "garbage":
			b.WriteString(converseFrame("chunk", payload))
		case strings.HasSuffix(name, "Exception"):
			b.WriteString(exceptionFrame(name, payload))
		default:
			b.WriteString(converseFrame(name, payload))
		}
	}
	return []byte(b.String())
}

// Every stream comes out as its answer says, however it is cut.
func TestStreams(t *testing.T) {
	t.Parallel()
	for _, c := range streamCases(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(5, uint64(len(c.body))))
			c.check(t, "whole", whole)
			c.check(t, "byte by byte", func(int) int { return 1 })
			for range 5 {
				c.check(t, "random pieces", randomPieces(random))
			}
		})
	}
}

// There is a stream of every format that an answer may name.
func TestStreamsAreOfEveryFormat(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range streamCases(t) {
		seen[c.Format] = true
	}
	for format := range benchEvents {
		if format, _, _ = strings.Cut(format, " "); !seen[format] {
			t.Errorf("no stream of %s", format)
		}
	}
}

func (c *streamCase) check(t *testing.T, cut string, split func(int) int) {
	t.Helper()
	got, passed := c.read(t, split)
	if c.Raw && passed != string(c.body) {
		t.Errorf("%s: passed on %q", cut, passed)
	}
	if c.Error == nil || c.Error.Upstream == nil { // its shape is not asked for
		if got.Error != nil {
			got.Error.Upstream = nil
		}
	}
	have, want := membersOf(t, got), membersOf(t, c.streamAnswer)
	for name := range want {
		if !reflect.DeepEqual(have[name], want[name]) {
			t.Errorf("%s: %s is %v, want %v", cut, name, have[name], want[name])
		}
	}
}

// read returns what comes of the stream, and what of it is passed on.
func (c *streamCase) read(t *testing.T, split func(int) int) (streamAnswer, string) {
	t.Helper()
	r := provider.NewReader(provider.Options{
		Path: c.Path, ContentType: c.ContentType, Choices: c.Choices, MaxEvent: c.MaxEvent,
	})
	var events []event.Event
	var passed strings.Builder
	got := streamAnswer{}
	for body := c.body; len(body) > 0; {
		n := min(split(len(body)), len(body))
		if r.State() == provider.Opaque {
			passed.Write(body[:n])
		}
		events = appendEvents(t, events, r.Feed(body[:n]))
		passed.Write(r.Held())
		got.Silent += r.Silent()
		body = body[n:]
	}
	events = appendEvents(t, events, r.Close(!c.Aborted))
	passed.Write(r.Held())
	got.Silent += r.Silent()
	checkEvents(t, r, events)

	got.Raw = r.State() == provider.Opaque
	got.Format, got.Model, got.ID, got.Skipped = r.Format(), r.Model(), r.ResponseID(), r.Skipped()
	got.streamChoice = streamChoiceOf(events, 0)
	got.addOthers(events)
	got.addEnd(events)
	if u := r.Usage(); u != nil {
		got.Usage = &streamUsage{u.Input, u.Output, u.CachedInput, u.CacheWrite, u.Reasoning}
	}
	return got, passed.String()
}

// addOthers adds the choices after choice 0.
func (a *streamAnswer) addOthers(events []event.Event) {
	last := 0
	for _, ev := range events {
		last = max(last, ev.Choice)
	}
	for choice := 1; choice <= last; choice++ {
		a.Others = append(a.Others, streamChoiceOf(events, choice))
	}
}

// addEnd adds the terminal event.
func (a *streamAnswer) addEnd(events []event.Event) {
	if len(events) == 0 {
		return
	}
	last := events[len(events)-1]
	if result := last.Result; result != nil {
		a.Finish, a.ProviderFinish = result.Finish, result.ProviderFinish
		for _, choice := range result.Choices {
			a.Finishes = append(a.Finishes, choice.Finish)
		}
	}
	if err := last.Err; err != nil {
		a.Error = &streamError{Code: err.Code, Status: err.Status, Message: err.Message, Upstream: err.Upstream}
	}
}

func streamChoiceOf(events []event.Event, choice int) streamChoice {
	a := choiceOf(events, choice)
	of := streamChoice{Text: a.text, Reasoning: a.reasoning, Refusal: a.refusal}
	for _, c := range a.calls {
		of.ToolCalls = append(of.ToolCalls, streamCall{c.id, c.name, c.arguments})
	}
	return of
}

// membersOf returns the members of an answer as JSON has them.
func membersOf(t *testing.T, a streamAnswer) map[string]any {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(b, &members); err != nil {
		t.Fatal(err)
	}
	return members
}
