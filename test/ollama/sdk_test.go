//go:build ollama

package ollama_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sdkFolder has a program for each SDK. It reads requests on its standard input
// and prints what the SDK made of each response.
const sdkFolder = "../sdk"

// sdkRun is a request, and sdkOutcome what the SDK made of the response.
type (
	sdkRun struct {
		Name  string `json:"name"`
		Way   string `json:"way"`
		URL   string `json:"url"`
		Tools bool   `json:"tools,omitempty"`
	}
	sdkOutcome struct {
		Run, Text, Reasoning, Finish string
		Tools                        []struct{ Name, Arguments string }
		Usage                        *struct{ Input, Output int64 }
		Ended                        bool
		Error                        *struct{ Class, Message string }
	}
)

// The official SDKs read the same through us, in the dialect for which they are
// made, as the model says.
func TestSDKs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, sdk := range []struct {
		emit, program string // the program with the packages that it is to take
		ways          []string
		words         map[string]string // for a finish
		tools, usage  bool
	}{
		{emit: "passthrough", program: "ollama.mjs", ways: []string{"chat"}, words: map[string]string{"tool_calls": "stop"}, tools: true, usage: true},
		{emit: "openai", program: "openai.mjs openai", ways: []string{"chat", "helper"}, tools: true, usage: true},
		{emit: "openai", program: "openai.mjs openai", ways: []string{"responses"}, words: map[string]string{"stop": "completed"}, usage: true},
		{emit: "openai", program: "ai-openai.mjs @ai-sdk/openai ai", ways: []string{"chat"}, words: map[string]string{"tool_calls": "tool-calls"}, tools: true, usage: true},
		{emit: "anthropic", program: "anthropic.mjs", ways: []string{"messages"}, words: map[string]string{"stop": "end_turn", "tool_calls": "tool_use"}, tools: true, usage: true},
	} {
		c := serve(t, "emit "+sdk.emit)
		for _, way := range sdk.ways {
			for _, tools := range []bool{false, true} {
				if tools && !sdk.tools {
					continue
				}
				name := sdk.program + " " + way
				topic := "text"
				if tools {
					topic = "call"
					name += " with a tool"
				}
				t.Run(name, func(t *testing.T) {
					got := runSDK(ctx, t, sdk.program, sdkRun{Name: name, Way: way, URL: "http://" + c.Addr, Tools: tools})
					want := topics[topic].answer
					if got.Error != nil || !got.Ended {
						t.Fatalf("the SDK says %+v", got.Error)
					}
					equal(t, "text", got.Text, want.text)
					if word := sdk.words[want.finish]; word != "" {
						want.finish = word
					}
					equal(t, "finish", got.Finish, want.finish)
					var calls []string
					for _, call := range got.Tools {
						calls = append(calls, call.Name+" "+call.Arguments)
					}
					checkCalls(t, calls, want.call)
					if sdk.usage && (got.Usage == nil || got.Usage.Input == 0 || got.Usage.Output == 0) {
						t.Errorf("usage is %+v", got.Usage)
					}
				})
			}
		}
	}
}

// runSDK lets a program make a request.
func runSDK(ctx context.Context, t *testing.T, program string, run sdkRun) sdkOutcome {
	t.Helper()
	input, err := json.Marshal([]sdkRun{run})
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", strings.Fields(program)...) //nolint:gosec // our own
	cmd.Dir = filepath.FromSlash(sdkFolder)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s (scripts/testdeps.sh installs what it needs): %v\n%s", program, err, &stderr)
	}
	var got sdkOutcome
	if err := json.Unmarshal(output, &got); err != nil {
		t.Fatalf("%s printed %s: %v", program, output, err)
	}
	return got
}
