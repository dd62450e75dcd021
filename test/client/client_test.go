// Package client_test runs the JavaScript client in Node.js before a real
// Caddy, over a network that is cut and through reloads and kills.
package client_test

import (
	"os/exec"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
	"github.com/caddy-llmstream/caddy-llmstream/test/internal/stage"
)

// The scenarios of scenarios.mjs, in Node.js.
func TestNode(t *testing.T) {
	node := tools.Node(t)
	s := stage.New(t, stage.Caddyfile)
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", "node.test.mjs")
	cmd.Env = s.Env()
	tools.RunTAP(t, cmd)
}

// What needs no server: how the client reads bytes and headers.
func TestUnit(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), tools.Node(t), "--test", "--test-reporter=tap", "unit.test.mjs")
	tools.RunTAP(t, cmd)
}

const clientDir = "../../client"

// The client is small enough for every page.
func TestSize(t *testing.T) {
	tools.Node(t)
	tools.Packages(t, clientDir)
	cmd := exec.CommandContext(t.Context(), "node", "size.mjs")
	cmd.Dir = clientDir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The types say what the client does.
func TestTypes(t *testing.T) {
	node := tools.Node(t)
	tools.Packages(t, clientDir)
	cmd := exec.CommandContext(t.Context(), node, clientDir+"/node_modules/typescript/bin/tsc",
		"--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable,dom.asynciterable",
		"--module", "nodenext", "types.ts")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
