package llmsim_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

func TestTextHasWhatTendsToBreak(t *testing.T) {
	text := llmsim.Text(120)
	if !utf8.ValidString(text) {
		t.Error("not UTF-8")
	}
	for _, part := range []string{"é", "東京", "🙂", "👨\u200d👩\u200d👧", `"`, "“", `\`, "\n", "\t", "<", "&"} {
		if !strings.Contains(text, part) {
			t.Errorf("120 tokens do not contain %q", part)
		}
	}
}

func TestTextGrowsByOneTokenEach(t *testing.T) {
	seen := make(map[string]bool)
	for n := range 400 {
		before, after := llmsim.Text(n), llmsim.Text(n+1)
		token, ok := strings.CutPrefix(after, before)
		if !ok || token == "" {
			t.Fatalf("Text(%d) is %q and Text(%d) is %q", n, before, n+1, after)
		}
		// Rounds differ, so that a lost part and a repeated part do not
		// make up for each other.
		if round, ok := strings.CutSuffix(token, "."); ok && strings.Trim(round, "0123456789") == "" && round != "" {
			if seen[token] {
				t.Errorf("two rounds have the number %s", token)
			}
			seen[token] = true
		}
	}
	if llmsim.Text(0) != "" || llmsim.ReasoningText(0) != "" {
		t.Error("no tokens have a text")
	}
}

func TestChoicesDifferAtEveryToken(t *testing.T) {
	for n := range 400 {
		tokens := make(map[string]int)
		for choice := range 3 {
			before, after := llmsim.ChoiceText(choice, n), llmsim.ChoiceText(choice, n+1)
			tokens[strings.TrimPrefix(after, before)]++
		}
		if len(tokens) == 1 {
			t.Errorf("token %d is %v in all choices", n, tokens)
		}
	}
}

func TestToolArgumentsAreJSON(t *testing.T) {
	if !json.Valid([]byte(llmsim.ToolArguments)) {
		t.Error(llmsim.ToolArguments)
	}
}
