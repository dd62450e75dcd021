package llmstream_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The syntax in the README is that of the doc comment.
func TestReadmeSyntax(t *testing.T) {
	_, rest, found := strings.Cut(readFile(t, "README.md"), "```caddyfile-syntax\n")
	block, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the README has no syntax block")
	}
	var comment strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(block, "\n"), "\n") {
		comment.WriteString("//\t" + line + "\n")
	}
	if !strings.Contains(readFile(t, "caddyfile.go"), comment.String()) {
		t.Errorf("not the syntax of UnmarshalCaddyfile:\n%s", block)
	}
}

// Every Caddyfile in the README can be loaded.
func TestReadmeCaddyfiles(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(readFile(t, "README.md"), -1)
	if len(blocks) < 5 {
		t.Fatalf("only %d Caddyfiles found", len(blocks))
	}
	for _, block := range blocks {
		adapted, err := rig.Adapt(block[1])
		if err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		cfg := new(caddy.Config)
		if err := json.Unmarshal(adapted, cfg); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(cfg); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
	}
}
