package sdk_test

import (
	"bufio"
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// run is one request that a program makes with its SDK.
type run struct {
	Name      string `json:"name"`
	Way       string `json:"way"` // which of the SDK's ways to ask
	URL       string `json:"url"` // the SDK adds the path of its API
	Tools     bool   `json:"tools,omitempty"`
	MaxTokens int    `json:"maxTokens,omitempty"`
	Choices   int    `json:"choices,omitempty"`
	Retries   int    `json:"retries,omitempty"`
}

// outcome is what an SDK made of a response.
type outcome struct {
	Run       string
	Text      string
	Reasoning string
	Refusal   string
	Tools     []toolCall
	Finish    string
	Usage     *struct{ Input, Output int64 }
	// Ended is whether the SDK gives the response out as whole.
	Ended bool
	Error *sdkError

	// Of an EventSource:
	IDs         []string // of the events
	Connections int      // more than one where it has reconnected
	Closed      int      // the status that made it give up
}

type toolCall struct{ ID, Name, Arguments string }

// sdkError is what an application sees of the exception of its SDK.
type sdkError struct {
	Class, Message, Type, Code string
	Status                     int
}

// program runs an SDK.
type program struct {
	name    string   // of the SDK, with its version
	command []string // in this folder
}

// npm is a program that uses an npm package, perhaps under an alias.
func npm(t *testing.T, pkg, script string, arguments ...string) program {
	t.Helper()
	needNode(t)
	manifest, err := os.ReadFile(filepath.Join("node_modules", filepath.FromSlash(pkg), "package.json"))
	if err != nil {
		t.Fatalf("%s is not installed; scripts/testdeps.sh installs it: %v", pkg, err)
	}
	var m struct{ Name, Version string }
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	return program{m.Name + " " + m.Version, append([]string{"node", script}, arguments...)}
}

// needNode skips the test where there is no Node.js, or no SDKs for it.
func needNode(t *testing.T) {
	t.Helper()
	tools.Node(t)
	tools.Packages(t, ".")
}

// goProgram is the program of the Go SDKs. It is built once for all tests.
var goProgram struct {
	once sync.Once
	dir  string
	err  error
}

func buildGo() (string, error) {
	g := &goProgram
	g.once.Do(func() {
		if g.dir, g.err = os.MkdirTemp("", "llmstream-sdk"); g.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", g.dir, ".")
		cmd.Dir = "go"
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			g.err = fmt.Errorf("building the program of the Go SDKs: %w\n%s", err, out)
		}
	})
	return filepath.Join(g.dir, "go"), g.err
}

// goSDK is a program that uses a Go module.
func goSDK(t *testing.T, module, argument string) program {
	t.Helper()
	bin, err := buildGo()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
	if i < 0 {
		t.Fatalf("the program of the Go SDKs is built without %s", module)
	}
	return program{module + " " + info.Deps[i].Version, []string{bin, argument}}
}

// do makes all runs, each in a request of its own, in one process.
func (p program) do(t *testing.T, runs []run) map[string]outcome {
	t.Helper()
	outcomes, err := p.ask(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func (p program) ask(ctx context.Context, runs []run) (map[string]outcome, error) {
	input, err := json.Marshal(runs)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s\n%s", p.name, err, stdout.Bytes(), stderr.Bytes())
	}
	outcomes := make(map[string]outcome, len(runs))
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s printed %s: %w", p.name, lines.Bytes(), err)
		}
		outcomes[o.Run] = o
	}
	if len(outcomes) != len(runs) {
		return nil, fmt.Errorf("%s: %d of %d runs said what came\n%s", p.name, len(outcomes), len(runs), stderr.Bytes())
	}
	return outcomes, nil
}
