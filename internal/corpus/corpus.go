// Package corpus gives tests the recorded streams that lie beside the
// checkout, each with the right answer. The product builds and passes without
// them: where they are missing, a test that needs them skips and says so.
package corpus

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Recording is one recorded stream and what it must yield.
type Recording struct {
	// File is the name relative to the corpus, such as "groq/text.sse".
	File string
	// Format is the wire format, such as "openai-chat", or "other".
	Format string
	Body   []byte
	Want   Want
}

// Want is the right answer. Its fields are explained in section 0 of wire.md.
type Want struct {
	Text         string     `json:"text"`
	Reasoning    string     `json:"reasoning"`
	Refusal      string     `json:"refusal"`
	ToolPlan     string     `json:"tool_plan"`
	ToolCalls    []ToolCall `json:"tool_calls"`
	FinishReason *string    `json:"finish_reason"`
	BlockReason  *string    `json:"block_reason"`
	Model        *string    `json:"model"`
	ResponseID   *string    `json:"response_id"`
	Usage        *Usage     `json:"usage"`
	// UsageAll and ToolCallsAll stand beside Usage and ToolCalls where these
	// are what a provider counts and runs apart. They are the right answer, and
	// Load puts them in the place of the others.
	UsageAll     *Usage     `json:"usage_all"`
	ToolCallsAll []ToolCall `json:"tool_calls_all"`

	Error      json.RawMessage `json:"error"`
	Terminator *string         `json:"terminator"`
	Flags      []string        `json:"flags"`
}

// Failed reports whether the recording ends with a provider's error.
func (w *Want) Failed() bool { return len(w.Error) > 0 && string(w.Error) != "null" }

// ToolCall is one whole tool call.
type ToolCall struct {
	ID        *string `json:"id"`
	Name      *string `json:"name"`
	Arguments string  `json:"arguments"`
}

// Usage holds token counts.
type Usage struct {
	Input     *int64 `json:"input"`
	Output    *int64 `json:"output"`
	Reasoning int64  `json:"reasoning"` // only in UsageAll
}

// Dir returns the shared folder that lies beside the checkout, and skips the
// test where there is none.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("no go.mod above the test")
		}
		dir = parent
	}
	shared := filepath.Join(filepath.Dir(dir), "shared")
	if _, err := os.Stat(filepath.Join(shared, "corpus", "MANIFEST.tsv")); err != nil {
		tb.Skip("SKIP-SHARED: the recorded streams (../shared/corpus) are not beside this checkout")
	}
	return shared
}

// Load returns the recordings of the given formats in the order of the
// manifest; without a format, all of them.
func Load(tb testing.TB, formats ...string) []Recording {
	tb.Helper()
	root := filepath.Join(Dir(tb), "corpus")
	manifest, err := os.ReadFile(filepath.Join(root, "MANIFEST.tsv"))
	if err != nil {
		tb.Fatal(err)
	}
	var recordings []Recording
	for _, line := range strings.Split(strings.TrimSpace(string(manifest)), "\n")[1:] {
		file, rest, _ := strings.Cut(line, "\t")
		format, _, _ := strings.Cut(rest, "\t")
		if wanted(format, formats) {
			recordings = append(recordings, read(tb, root, file, format))
		}
	}
	if len(recordings) == 0 {
		tb.Fatalf("no recordings of %v", formats)
	}
	return recordings
}

func wanted(format string, formats []string) bool {
	return len(formats) == 0 || slices.Contains(formats, format)
}

func read(tb testing.TB, root, file, format string) Recording {
	tb.Helper()
	rec := Recording{File: file, Format: format}
	var err error
	if rec.Body, err = os.ReadFile(filepath.Join(root, file)); err != nil {
		tb.Fatal(err)
	}
	side, err := os.ReadFile(filepath.Join(root, strings.TrimSuffix(file, filepath.Ext(file))+".want.json"))
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(side, &rec.Want); err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	if rec.Want.UsageAll != nil {
		rec.Want.Usage = rec.Want.UsageAll
	}
	if rec.Want.ToolCallsAll != nil {
		rec.Want.ToolCalls = rec.Want.ToolCallsAll
	}
	return rec
}
