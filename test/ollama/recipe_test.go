//go:build ollama

package ollama_test

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// caddyfiles are the examples in the README.
var caddyfiles = regexp.MustCompile("(?s)```caddyfile\n(.*?)```")

const (
	readmeSite   = ":8080"
	readmeOllama = "127.0.0.1:11434"
)

// The recipe of the README works word for word, also for the clients of a
// public site, whose Host Ollama would refuse.
func TestRecipe(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := 0
	for _, match := range caddyfiles.FindAllStringSubmatch(string(readme), -1) {
		if !strings.Contains(match[1], readmeOllama) {
			continue
		}
		recipes++
		addr := rig.FreeAddr(t)
		_, port, _ := net.SplitHostPort(addr)
		rig.Start(t, strings.NewReplacer(readmeSite, "http://:"+port, readmeOllama, ollama.addr).Replace(match[1]))
		for _, e := range endpoints {
			t.Run(e.path, func(t *testing.T) {
				q, want, _ := e.about("text")
				resp := ask(t, addr, e, q, "Host", "llm.example.com")
				if resp.Header.Get("X-Response-Id") != "" {
					checkAnswer(t, rig.ReadAnswer(t, resp.Body), want)
					return
				}
				// What the recipe leaves alone is in Ollama's own words.
				equal(t, "own API", e.always, true)
				equal(t, "content type", resp.Header.Get("Content-Type"), "application/x-ndjson")
				if !strings.Contains(whole(t, resp), `"done":true`) {
					t.Error("it does not come to its end")
				}
			})
		}
	}
	equal(t, "recipes in the README", recipes, 1)
}
