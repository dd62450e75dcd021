package llmstream_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	_ "github.com/caddy-llmstream/caddy-llmstream/internal/llmsim" // which Caddyfile.example names
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

// The syntax in the documents is that of the doc comment.
func TestReadmeSyntax(t *testing.T) {
	_, rest, found := strings.Cut(readFile(t, reference), "```caddyfile-syntax\n")
	block, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal(reference, "has no syntax block")
	}
	var comment strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(block, "\n"), "\n") {
		comment.WriteString("//\t" + line + "\n")
	}
	if !strings.Contains(readFile(t, "caddyfile.go"), comment.String()) {
		t.Errorf("not the syntax of UnmarshalCaddyfile:\n%s", block)
	}
}

// documents are the files with Caddyfiles and links, for users.
func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("%d files in docs: %v", len(docs), err)
	}
	return append(docs, "README.md", "CONTRIBUTING.md", "xcaddy.md", "deploy/README.md", "client/README.md", "examples/README.md")
}

// Every Caddyfile in the documents and examples can be loaded.
func TestDocumentedCaddyfiles(t *testing.T) {
	var caddyfiles []string
	for _, name := range documents(t) {
		for _, block := range regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(readFile(t, name), -1) {
			caddyfiles = append(caddyfiles, block[1])
		}
	}
	if len(caddyfiles) < 20 {
		t.Fatalf("only %d Caddyfiles found", len(caddyfiles))
	}
	examples, err := filepath.Glob("examples/*/Caddyfile")
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples: %v", len(examples), err)
	}
	for _, name := range append(examples, "Caddyfile.example") {
		caddyfiles = append(caddyfiles, readFile(t, name))
	}
	for _, caddyfile := range caddyfiles {
		adapted, err := rig.Adapt(caddyfile)
		if err != nil {
			t.Errorf("%v in\n%s", err, caddyfile)
			continue
		}
		cfg := new(caddy.Config)
		if err := json.Unmarshal(adapted, cfg); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(cfg); err != nil {
			t.Errorf("%v in\n%s", err, caddyfile)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns what links into a document can name.
func anchors(text string) map[string]bool {
	names := map[string]bool{"": true}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		names[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return names
}

// Every link between the documents leads somewhere.
func TestLinks(t *testing.T) {
	for _, name := range documents(t) {
		for _, l := range link.FindAllStringSubmatch(fenced.ReplaceAllString(readFile(t, name), ""), -1) {
			target, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, ":") {
				continue // elsewhere
			}
			file := name
			if target != "" {
				file = filepath.Join(filepath.Dir(name), target)
			}
			info, err := os.Stat(file)
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", name, l[1], err)
			case !info.IsDir() && !anchors(readFile(t, file))[anchor]:
				t.Errorf("%s: %s has no such heading", name, l[1])
			}
		}
	}
}
