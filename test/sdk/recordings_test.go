package sdk_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// recording is a recorded stream that the handler decodes.
type recording struct {
	corpus.Recording
	finish  event.FinishReason
	choices int // where there is more than one
}

// decodable returns the recordings of every format that can be decoded and
// that begins with a kind of response which every client accepts.
func decodable(t *testing.T) []recording {
	t.Helper()
	var list []recording
	formats := map[string]int{}
	for _, rec := range corpus.Load(t) {
		if ext := filepath.Ext(rec.File); ext != ".sse" && ext != ".ndjson" {
			continue
		}
		if r := (recording{Recording: rec}); r.decode() {
			formats[rec.Format]++
			list = append(list, r)
		}
	}
	for _, format := range []string{"openai-chat", "anthropic-messages", "ollama-chat"} {
		if formats[format] == 0 {
			t.Errorf("no recording of %s is decoded", format)
		}
	}
	t.Logf("recordings of each format: %v", formats)
	return list
}

// decode reports whether the handler decodes the recording, and learns of it
// what the sidecar does not say.
func (r *recording) decode() bool {
	reader := provider.NewReader(provider.Options{Path: "/v1/chat/completions", ContentType: contentType(r.Recording)})
	r.learn(reader.Feed(r.Body))
	r.learn(reader.Close(true))
	return reader.State() == provider.Recognized
}

func (r *recording) learn(events []event.Event) {
	for _, ev := range events {
		if ev.Choice > 0 {
			r.choices = max(r.choices, ev.Choice+1)
		}
		if ev.Kind == event.Done {
			r.finish = ev.Result.Finish
		}
	}
}

func contentType(rec corpus.Recording) string {
	if strings.HasSuffix(rec.File, ".ndjson") {
		return "application/x-ndjson"
	}
	return "text/event-stream"
}

// Every recording that can be decoded is what its sidecar says in every
// dialect, whatever provider it is of.
func TestRecordingsInEveryDialect(t *testing.T) {
	recordings := decodable(t)
	s := newStage(t)
	t.Run("SDK", func(t *testing.T) {
		for _, c := range clients(t) {
			if c.dialect == "passthrough" {
				continue
			}
			t.Run(c.name+"/"+c.dialect, func(t *testing.T) {
				t.Parallel()
				s.replay(t, &c, recordings)
			})
		}
	})
}

// replay lets a client read all recordings.
func (s *stage) replay(t *testing.T, c *client, recordings []recording) {
	t.Helper()
	runs := make([]run, len(recordings))
	for i, rec := range recordings {
		a := s.backend.add(recorded(rec.Recording, playWhole, ""))
		runs[i] = run{Name: rec.File, URL: s.url(c, new(scenario), a), Choices: rec.choices}
		if c.ways != nil {
			runs[i].Way = c.ways[len(c.ways)-1]
		}
	}
	outcomes := c.do(t, runs)
	for _, rec := range recordings {
		if rec.choices > 0 && c.oneChoice || len(rec.Want.ToolCalls) > 0 && c.noTools != "" {
			continue
		}
		t.Run(rec.File, func(t *testing.T) {
			got, said := outcomes[rec.File]
			if !said {
				t.Fatal("nothing came")
			}
			checkRecording(t, c, &rec, &got)
		})
	}
}

func checkRecording(t *testing.T, c *client, rec *recording, got *outcome) {
	t.Helper()
	want := &rec.Want
	if want.Failed() {
		if got.Error == nil || got.Ended {
			t.Fatalf("ended %v, error %+v", got.Ended, got.Error)
		}
		return
	}
	if got.Error != nil || !got.Ended {
		t.Fatalf("ended %v, error %+v", got.Ended, got.Error)
	}
	text, refusal := want.Text, want.Refusal
	if c.dialect != "openai" || c.textRefuses {
		text, refusal = text+refusal, ""
	}
	equal(t, "text", got.Text, text)
	if !c.noRefusal {
		equal(t, "refusal", got.Refusal, refusal)
	}
	if c.noReasoning == "" {
		equal(t, "reasoning", got.Reasoning, want.Reasoning+want.ToolPlan)
	}
	equal(t, "finish", got.Finish, c.finish(rec))
	checkCalls(t, c, want.ToolCalls, got.Tools)
	if c.noUsage == "" && want.Usage != nil && want.Usage.Input != nil && want.Usage.Output != nil {
		if got.Usage == nil {
			t.Fatal("no usage")
		}
		equal(t, "input tokens", got.Usage.Input, *want.Usage.Input)
		equal(t, "output tokens", got.Usage.Output, *want.Usage.Output)
	}
}

func checkCalls(t *testing.T, c *client, want []corpus.ToolCall, got []toolCall) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d calls, not %d: %+v", len(got), len(want), got)
	}
	for i, call := range want {
		if call.ID != nil {
			equal(t, "id", got[i].ID, *call.ID)
		} else if got[i].ID == "" {
			t.Error("a call without an id")
		}
		if call.Name != nil {
			equal(t, "name", got[i].Name, *call.Name)
		}
		arguments := call.Arguments
		if arguments == "" {
			arguments = "{}" // clients parse them
		}
		if !json.Valid([]byte(arguments)) && c.dialect != "openai" {
			checkNoJSON(t, c, got[i].Arguments, arguments)
			continue
		}
		equal(t, "arguments", canonical(got[i].Arguments), canonical(arguments))
	}
}

// checkNoJSON is for arguments that are free text or were cut off, which these
// SDKs take only as JSON.
func checkNoJSON(t *testing.T, c *client, got, want string) {
	t.Helper()
	free, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(want, "{") && c.dialect == "anthropic":
		// Each of its SDKs has a way of its own to repair what was cut off.
	case strings.HasPrefix(want, "{"):
		equal(t, "arguments", got, want)
	case c.dialect == "anthropic":
		equal(t, "arguments", canonical(got), canonical(`{"input":`+string(free)+`}`))
	default:
		equal(t, "arguments", canonical(got), canonical(string(free)))
	}
}

// finish returns how the recording ends in the words of the client.
func (c *client) finish(rec *recording) string {
	if c.dialect == "anthropic" && rec.Format == "anthropic-messages" && rec.Want.FinishReason != nil {
		return *rec.Want.FinishReason
	}
	if c.textRefuses && rec.Want.Refusal != "" {
		return c.filtered
	}
	words := map[event.FinishReason]string{
		event.FinishStop: c.stop, event.FinishLength: c.length, event.FinishToolCalls: c.toolCalls,
		event.FinishContentFilter: c.filtered,
	}
	if word := words[rec.finish]; word != "" {
		return word
	}
	switch {
	case c.dialect == "ai-sdk":
		return "other"
	case c.dialect == "anthropic" && rec.finish == event.FinishPause:
		return "pause_turn"
	}
	return c.stop
}
