package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

const examplePath = "../../Caddyfile.example"

func readExample(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// adapt returns a Caddyfile as JSON, in one line.
func adapt(t *testing.T, content string) string {
	t.Helper()
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(content), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Errorf("line %d: %s", w.Line, w.Message)
	}
	return string(config)
}

// validate loads a configuration without running it, as caddy validate does.
func validate(t *testing.T, config string) {
	t.Helper()
	var c caddy.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Error(err)
	}
}

func TestExample(t *testing.T) {
	content := readExample(t)
	if formatted := string(caddyfile.Format([]byte(content))); formatted != content {
		t.Errorf("run caddy fmt; it should be\n%s", formatted)
	}
	config := adapt(t, content)
	for _, part := range []string{
		`"handler":"llm_stream","resume":{`,
		`{"handler":"llm_stream_playground","reload":"/demo/reload"}`,
		`{"handle":[{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:8081"}]}]}`,
		`"listen":["127.0.0.1:8081"]`,
		`"handler":"llmsim"`,
	} {
		if !strings.Contains(config, part) {
			t.Errorf("no %s in %s", part, config)
		}
	}
	if strings.Contains(config, `"tls"`) || strings.Contains(config, `"admin"`) {
		t.Errorf("more than HTTP in %s", config)
	}
	validate(t, config)
}

// A recipe is a comment with a tab of its own.
var recipe = regexp.MustCompile(`(?m)(^\t#\t.*\n)+`)

// A recipe in the place of reverse_proxy is a Caddyfile that works.
func TestExampleRecipes(t *testing.T) {
	content := readExample(t)
	const active = "\treverse_proxy 127.0.0.1:8081\n"
	if !strings.Contains(content, active) {
		t.Fatal("no reverse_proxy to the simulated backend")
	}
	recipes := recipe.FindAllString(content, -1)
	for _, want := range []struct{ backend, part string }{
		{"Ollama", `"Host":["{http.reverse_proxy.upstream.hostport}"]`},
		{"vLLM", `"upstreams":[{"dial":"127.0.0.1:8000"},{"dial":"127.0.0.1:8001"}]`},
		{"llama.cpp", `"delete":["X-Conversation-Id"]`},
		{"OpenAI", `"Authorization":["Bearer {env.OPENAI_API_KEY}"]`},
		{"Anthropic", `"X-Api-Key":["{env.ANTHROPIC_API_KEY}"]`},
	} {
		t.Run(want.backend, func(t *testing.T) {
			if len(recipes) == 0 {
				t.Fatal("no recipe")
			}
			own := strings.ReplaceAll(recipes[0], "\t#\t", "\t")
			recipes = recipes[1:]
			config := adapt(t, strings.Replace(content, active, own, 1))
			if !strings.Contains(config, want.part) {
				t.Errorf("no %s in %s", want.part, config)
			}
			validate(t, config)
		})
	}
	if len(recipes) > 0 {
		t.Errorf("recipes that are not tested: %q", recipes)
	}
}
