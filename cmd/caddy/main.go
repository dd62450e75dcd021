// Command caddy is a Caddy with the standard modules, llm_stream and the
// simulated backend, which the example and the end-to-end tests need. For
// production, xcaddy builds a Caddy without the simulator.
package main

import (
	_ "time/tzdata"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-llmstream/caddy-llmstream"
	_ "github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

func main() {
	caddycmd.Main()
}
