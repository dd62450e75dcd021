package provider_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// paths has a request path for every format under test.
var paths = map[string]string{
	"openai-chat":         "/v1/chat/completions",
	"openai-completions":  "/v1/completions",
	"openai-responses":    "/v1/responses",
	"gemini":              "/v1beta/models/gemini:streamGenerateContent",
	"gemini-interactions": "/v1beta/interactions",
	"cohere-v1":           "/v1/chat",
	"cohere-v2":           "/v2/chat",
	"bedrock-invoke":      "/model/anthropic.claude-3-haiku/invoke-with-response-stream",
	"bedrock-converse":    "/model/anthropic.claude-3-haiku/converse-stream",
	"openai-assistants":   "/v1/threads/thread_1/runs",
	"llamacpp-completion": "/completion",
	"watsonx":             "/ml/v1/text/generation_stream",
	"anthropic-messages":  "/v1/messages",
	"ollama-chat":         "/api/chat",
	"ollama-generate":     "/api/generate",
}

// optionsOf returns what a proxy knows when the recording's response begins.
func optionsOf(rec corpus.Recording) provider.Options {
	o := provider.Options{ContentType: "text/event-stream; charset=utf-8", Path: paths[rec.Format]}
	switch filepath.Ext(rec.File) {
	case ".ndjson":
		o.ContentType = "application/x-ndjson"
		if rec.Format == "cohere-v1" {
			o.ContentType = "application/stream+json"
		}
	case ".json":
		o.ContentType = "application/json; charset=UTF-8"
	case ".eventstream":
		o.ContentType = "application/vnd.amazon.eventstream"
	}
	return o
}

func TestEveryRecordingIsOfAFormatUnderTest(t *testing.T) {
	t.Parallel()
	for _, rec := range corpus.Load(t) {
		if paths[rec.Format] == "" && rec.Format != "other" {
			t.Errorf("%s is of the format %s, which no test reads", rec.File, rec.Format)
		}
	}
}

func TestRecordingsYieldWhatTheirProvidersSaid(t *testing.T) {
	t.Parallel()
	for format := range paths {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			recordings := corpus.Load(t, format)
			passed := 0
			for _, rec := range recordings {
				if checkRecording(t, rec) {
					passed++
				}
			}
			t.Logf("%s: %d of %d recordings passed", format, passed, len(recordings))
		})
	}
}

// checkRecording reads a recording whole, byte by byte, in random pieces and
// without knowing its path.
func checkRecording(t *testing.T, rec corpus.Recording) bool {
	t.Helper()
	ok := true
	check := func(how string, o provider.Options, split func(left int) int) {
		t.Helper()
		r := provider.NewReader(o)
		got := answerOf(readAll(t, r, rec.Body, split))
		if diff := compare(rec, r, got); diff != "" {
			t.Errorf("%s, %s: %s", rec.File, how, diff)
			ok = false
		}
	}
	known := optionsOf(rec)
	check("whole", known, whole)
	check("byte by byte", known, func(int) int { return 1 })
	random := rand.New(rand.NewPCG(1, uint64(len(rec.Body))))
	for range 5 {
		check("random pieces", known, randomPieces(random))
	}
	unknown := known
	unknown.Path = ""
	check("without a path", unknown, whole)
	check("without a path, random pieces", unknown, randomPieces(random))
	return ok
}

func whole(left int) int { return left }

// randomPieces cuts a body into pieces of many sizes.
func randomPieces(random *rand.Rand) func(left int) int {
	largest := 1 << random.IntN(12)
	return func(int) int { return 1 + random.IntN(largest) }
}

// compare returns how an answer differs from what the recording wants, empty
// where it does not.
func compare(rec corpus.Recording, r *provider.Reader, got answer) string {
	want := rec.Want
	var diffs []string
	differ := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			diffs = append(diffs, fmt.Sprintf("%s is %q, want %q", what, got, want))
		}
	}
	differ("format", r.Format(), rec.Format)
	differ("text", got.text, want.Text)
	differ("reasoning", got.reasoning, want.Reasoning+want.ToolPlan)
	differ("refusal", got.refusal, want.Refusal)
	differ("tool calls", callsOf(rec.Format, got.calls), callsOf(rec.Format, wantedCalls(want.ToolCalls)))
	if want.Model != nil {
		differ("model", r.Model(), *want.Model)
	}
	if want.ResponseID != nil {
		differ("response id", r.ResponseID(), *want.ResponseID)
	}
	if want.Failed() {
		if got.err == nil {
			return strings.Join(append(diffs, "no error"), "; ")
		}
		differ("error code", got.err.Code, event.CodeUpstreamError)
		upstream := decoded(got.err.Upstream)
		if saysMore[rec.File] {
			upstream = narrowed(upstream, decoded(want.Error))
		}
		differ("error", upstream, decoded(want.Error))
		return strings.Join(diffs, "; ")
	}
	if slices.Contains(want.Flags, "truncated") {
		if got.err == nil || got.err.Code != event.CodeUpstreamTruncated {
			diffs = append(diffs, fmt.Sprintf("ended with %v and %v, want it truncated", got.result, got.err))
		}
		return strings.Join(diffs, "; ")
	}
	if got.result == nil {
		return strings.Join(append(diffs, fmt.Sprintf("ended with %v", got.err)), "; ")
	}
	word := want.FinishReason
	if want.BlockReason != nil { // the provider's own word for it
		word = want.BlockReason
		differ("normalized finish", got.result.Finish, event.FinishContentFilter)
	}
	differ("finish", got.result.ProviderFinish, valueOr(word, ""))
	differ("usage", wholeOf(got.result.Usage), wantedUsage(want.Usage))
	if all := want.UsageAll; all != nil {
		differ("reasoning tokens", got.result.Usage.Reasoning, all.Reasoning)
	}
	return strings.Join(diffs, "; ")
}

// saysMore has the recordings with an error of which we keep more fields than
// their sidecars name. Those that they name must be right.
var saysMore = map[string]bool{
	// The error event says type, code, message and param. The sidecar is of the
	// response.failed after it, which repeats code and message. The first one
	// ends the response: the older API sends no other, and a client is not to
	// wait for it.
	"openai-responses/error-event.sse": true,
	// The exception has an originalStatusCode beside its message.
	"bedrock-converse/x-exception-frame.eventstream": true,
}

// narrowed returns of an object only the members that another one has.
func narrowed(object, to any) any {
	members, ok := object.(map[string]any)
	if !ok {
		return object
	}
	names, _ := to.(map[string]any)
	for name := range members {
		if _, ok := names[name]; !ok {
			delete(members, name)
		}
	}
	return members
}

// callsOf makes calls comparable: where a format delivers arguments as an
// object, their values count and not their bytes.
func callsOf(format string, calls []call) []call {
	if format != "ollama-chat" && format != "gemini" {
		return calls
	}
	for i := range calls {
		if value := decoded([]byte(calls[i].arguments)); value != nil {
			calls[i].arguments = fmt.Sprint(value)
		}
	}
	return calls
}

func wantedCalls(want []corpus.ToolCall) []call {
	var calls []call
	for _, c := range want {
		calls = append(calls, call{id: valueOr(c.ID, ""), name: valueOr(c.Name, ""), arguments: c.Arguments})
	}
	return calls
}

func wantedUsage(want *corpus.Usage) *event.TokenUsage {
	if want == nil {
		return nil
	}
	return &event.TokenUsage{Input: valueOr(want.Input, -1), Output: valueOr(want.Output, -1)}
}

// wholeOf returns token counts without their parts, which most sidecars do not
// name.
func wholeOf(usage *event.TokenUsage) *event.TokenUsage {
	if usage == nil {
		return nil
	}
	return &event.TokenUsage{Input: usage.Input, Output: usage.Output}
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// decoded returns the value of a JSON text, nil where it is none.
func decoded(text []byte) any {
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	return value
}

func TestStreamsOfNoKnownFormatArePassedOnUntouched(t *testing.T) {
	t.Parallel()
	recordings := corpus.Load(t, "other")
	for _, rec := range recordings {
		for _, path := range []string{"", "/v1/chat/completions"} {
			o := optionsOf(rec)
			o.Path = path
			random := rand.New(rand.NewPCG(2, uint64(len(rec.Body))))
			for i := range 22 {
				split := randomPieces(random)
				switch i {
				case 0:
					split = whole
				case 1:
					split = func(int) int { return 1 }
				}
				passed, state := passThrough(t, o, rec.Body, split)
				if state != provider.Opaque || passed != string(rec.Body) {
					t.Errorf("%s, path %q: state %d, passed on %d of %d bytes",
						rec.File, path, state, len(passed), len(rec.Body))
				}
			}
		}
	}
	t.Logf("%d recordings of no known format", len(recordings))
}

// passThrough feeds body to a Reader and returns what a handler would pass on.
func passThrough(t *testing.T, o provider.Options, body []byte, split func(left int) int) (string, provider.State) {
	t.Helper()
	r := provider.NewReader(o)
	var passed strings.Builder
	for len(body) > 0 {
		n := min(split(len(body)), len(body))
		opaque := r.State() == provider.Opaque
		if events := r.Feed(body[:n]); len(events) > 0 {
			t.Errorf("events of an unknown stream: %v", events)
		}
		if opaque {
			passed.Write(body[:n])
		}
		passed.Write(r.Held())
		body = body[n:]
	}
	if events := r.Close(true); len(events) > 0 {
		t.Errorf("events of an unknown stream: %v", events)
	}
	passed.Write(r.Held())
	return passed.String(), r.State()
}
