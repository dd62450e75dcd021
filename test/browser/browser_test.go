// Package browser_test runs in Chromium what people look at: the JavaScript
// client, the playground, and the examples.
package browser_test

import (
	"os/exec"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/test/internal/stage"
	"github.com/caddy-llmstream/caddy-llmstream/test/internal/tools"
)

// run runs a script with Chromium before a Caddy.
func run(t *testing.T, caddyfile, script string, env ...string) {
	t.Helper()
	node, chromium := tools.Node(t), tools.Chromium(t)
	tools.Packages(t, ".")
	s := stage.New(t, caddyfile)
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", script)
	cmd.Env = append(s.Env(), append(env, "LLMSTREAM_CHROMIUM="+chromium)...)
	tools.RunTAP(t, cmd)
}

// The scenarios of the client, as in Node.js.
func TestClient(t *testing.T) {
	run(t, stage.Caddyfile, "client.test.mjs")
}

// The page of llm_stream_playground.
func TestPlayground(t *testing.T) {
	run(t, playground, "playground.test.mjs")
}

// playground is a site as in Caddyfile.example.
const playground = `ADDR {
	llm_stream /v1/* {
		include reasoning tool_calls
		resume /llm {
			owner   anyone
			channel {header.X-Chat-Id}
		}
		drain {
			spread 200ms
			retry  300ms
		}
	}
	llm_stream_playground {
		reload /demo/reload
	}
	request_header X-Sim-Tokens 300
	handle /demo/reload {
		rewrite /reload
		reverse_proxy STAGE
	}
	handle_path /bare/* {
		llm_stream_playground
	}
	reverse_proxy BACKEND
}
`
