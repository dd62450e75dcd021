package sdk_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// failures are the error events of the formats that only pass through.
var failures = map[string]string{
	"openai-responses": "event: error\n" + `data: {"type":"error","code":"server_error","message":"` + failure + `","param":null,"sequence_number":9}` + "\n\n",
	"gemini":           `data: {"error":{"code":503,"message":"` + failure + `","status":"UNAVAILABLE"}}` + "\n\n",
}

// What passes through is what the backend has sent, and heartbeats between its
// frames break no SDK.
func TestPassedThroughRecordings(t *testing.T) {
	needNode(t)
	openai := client{program: npm(t, "openai", "openai.mjs", "openai"), dialect: "passthrough", ways: []string{"responses"}}
	openai.name += ", responses"
	google := client{
		program: npm(t, "@google/genai", "google.mjs"), dialect: "passthrough", ways: []string{"generate"},
		noRetry: "SDK's default is none", noBeat: "none in Gemini's format",
	}
	recordings := map[string]corpus.Recording{}
	for _, rec := range corpus.Load(t, "openai-responses", "gemini") {
		recordings[rec.File] = rec
	}
	s := newStage(t)
	t.Run("SDK", func(t *testing.T) {
		for _, tc := range []struct {
			client client
			files  map[string][]string // the columns that each shows
		}{
			{openai, map[string][]string{
				"openai-responses/tools-parallel.sse":         {"tools", "usage"},
				"openai-responses/azure-thinking-tool.sse":    {"tools", "reasoning"},
				"openai-responses/web-search-annotations.sse": {"text", "usage"},
			}},
			{google, map[string][]string{
				"gemini/thoughts-utf8.sse":            {"text", "reasoning", "usage"},
				"gemini/tools-parallel-multipart.sse": {"tools"},
			}},
		} {
			t.Run(tc.client.name, func(t *testing.T) {
				t.Parallel()
				tc.client.footnotes()
				var list []passedOn
				for file, columns := range tc.files {
					list = append(list, passings(recordings[file], columns, &tc.client)...)
				}
				s.passOn(t, &tc.client, list)
			})
		}
	})
}

// passedOn is a recording that is played in one way.
type passedOn struct {
	name    string
	rec     corpus.Recording
	columns []string
	sc      scenario // how it is asked for
	handler http.Handler
	fails   bool
	why     string // part of the error's message
	// silent is where no SDK reports an error: a reader cannot tell that it is not
	// whole, or Google's clients are left to find that the finish is missing.
	silent bool
}

// passings are the ways in which a recording is played to a client.
func passings(rec corpus.Recording, columns []string, c *client) []passedOn {
	refused := simulated("openai", llmsim.Options{Fault: llmsim.FaultStatus, Status: http.StatusTooManyRequests})
	played := func(how play) http.Handler { return recorded(rec, how, failures[rec.Format]) }
	list := []passedOn{
		{name: "whole", columns: columns, handler: played(playWhole)},
		{name: "refused", columns: []string{"error"}, handler: refused, fails: true, why: failure},
	}
	if c.noRetry == "" {
		list = append(list, passedOn{
			name: "retried", columns: []string{"retry"}, sc: scenario{retries: 2},
			handler: afterFirst(refused, played(playWhole)),
		})
	}
	if len(rec.Body) > 2*cutAfter { // and has many events
		decoded := (&recording{Recording: rec}).decode()
		list = append(
			list,
			passedOn{name: "heartbeat", columns: []string{"heartbeat"}, sc: scenario{beat: true}, handler: played(playSlowly)},
			passedOn{name: "backend dies", columns: []string{"cut"}, handler: played(playDying), fails: true},
			passedOn{name: "backend ends early", columns: []string{"cut"}, handler: played(playEnding), fails: true, silent: !decoded || rec.Format == "gemini"},
			passedOn{name: "client is cut off", columns: []string{"cut"}, sc: scenario{cut: true}, handler: played(playWhole), fails: true},
			passedOn{name: "error", columns: []string{"error"}, handler: played(playFailing), fails: true, why: failure},
		)
	}
	for i := range list {
		list[i].rec = rec
		list[i].name = rec.File + "/" + list[i].name
	}
	return list
}

func (s *stage) passOn(t *testing.T, c *client, list []passedOn) {
	t.Helper()
	runs := make([]run, len(list))
	for i, p := range list {
		a := s.backend.add(p.handler)
		runs[i] = run{Name: p.name, Way: c.ways[0], URL: s.url(c, &p.sc, a), Retries: p.sc.retries}
	}
	outcomes := c.do(t, runs)
	for _, p := range list {
		ok := t.Run(p.name, func(t *testing.T) {
			got := outcomes[p.name]
			if p.fails {
				p.checkFailed(t, &got)
			} else {
				p.checkWhole(t, &got)
			}
		})
		table.add(c.row(), p.columns, ok)
	}
}

func (p *passedOn) checkFailed(t *testing.T, got *outcome) {
	t.Helper()
	switch {
	case got.Ended:
		t.Error("the SDK takes it for a whole response")
	case p.silent:
	case got.Error == nil:
		t.Error("the SDK has reported no error")
	case !strings.Contains(got.Error.Message, p.why):
		t.Errorf("the error is %+v", got.Error)
	}
}

func (p *passedOn) checkWhole(t *testing.T, got *outcome) {
	t.Helper()
	want := &p.rec.Want
	if got.Error != nil || !got.Ended {
		t.Fatalf("ended %v, error %+v", got.Ended, got.Error)
	}
	equal(t, "text", got.Text, want.Text)
	equal(t, "reasoning", got.Reasoning, want.Reasoning)
	if len(got.Tools) != len(want.ToolCalls) {
		t.Fatalf("%d calls, not %d", len(got.Tools), len(want.ToolCalls))
	}
	for i, call := range want.ToolCalls {
		equal(t, "name", got.Tools[i].Name, *call.Name)
		equal(t, "arguments", canonical(got.Tools[i].Arguments), canonical(call.Arguments))
	}
	if got.Usage == nil {
		t.Fatal("no usage")
	}
	equal(t, "input tokens", got.Usage.Input, *want.Usage.Input)
}
