// Package sdk_test lets the official SDKs read what a real Caddy sends, each in
// a process of its own: every dialect is what its SDK makes of it, not what we
// think that it should.
package sdk_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	_ "github.com/caddy-llmstream/caddy-llmstream" // the handler
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// client is an SDK that reads a dialect from backends of some formats.
type client struct {
	program
	dialect string
	ways    []string // of the SDK to ask
	from    []string // the formats of the backends

	// The SDK's words for how a response ends.
	stop, length, toolCalls, filtered string
	// What the table says instead where the SDK or the dialect has none.
	noTools, noReasoning, noUsage, noRetry, noBeat string

	streamError string         // the class of an error in mid-stream
	refusals    map[int]string // the class of an error with a status
	textRefuses bool           // the SDK takes a refusal for text
	oneChoice   bool           // the SDK asks for one choice only
	statusless  bool           // the error of a refused request has no status
	codes       bool           // an error in mid-stream has our code
	wordless    bool           // an error in mid-stream has no message of ours
	noRefusal   bool           // the SDK drops refusals
}

// words are what the APIs call the ways to end.
func (c client) words(stop, length, toolCalls, filtered string) client {
	c.stop, c.length, c.toolCalls, c.filtered = stop, length, toolCalls, filtered
	return c
}

// toolTokens is how many tokens llmsim counts for a tool call.
func (c *client) toolTokens() int {
	if c.from[0] == "ollama" {
		return 1
	}
	return 6
}

// checkStreamError checks the exception of a response that breaks off.
func (c *client) checkStreamError(t *testing.T, s *scenario, got *sdkError) {
	t.Helper()
	if s.why == "" && c.dialect == "passthrough" {
		return // the connection is aborted: each has its own words for that
	}
	equal(t, "class of the error", got.Class, c.streamError)
	code := "upstream_truncated"
	if s.why != "" {
		code = "upstream_error"
	}
	if !c.wordless && !strings.Contains(got.Message, s.why) {
		t.Errorf("message is %q, without %q", got.Message, s.why)
	}
	if c.codes && c.dialect != "passthrough" {
		equal(t, "code of the error", got.Code, code)
	}
}

// checkRefusal checks the exception of a request that is answered with a
// status.
func (c *client) checkRefusal(t *testing.T, s *scenario, got *sdkError) {
	t.Helper()
	if !strings.Contains(got.Message, failure) {
		t.Errorf("message is %q", got.Message)
	}
	if c.statusless {
		return
	}
	if got.Status != s.status && (!s.reads || got.Status != 529) {
		t.Errorf("status is %d, not %d", got.Status, s.status)
	}
	equal(t, "class of the error", got.Class, c.refusals[got.Status])
}

// clients are the SDKs and the dialects that they read.
func clients(t *testing.T) []client {
	t.Helper()
	return slices.Concat(openAIClients(t), looseClients(t), strictClients(t), otherClients(t))
}

// oneClass is for SDKs with one class for all refused requests.
func oneClass(class string) map[int]string { return map[int]string{429: class, 500: class, 529: class} }

// both are the formats that are tested to become a dialect.
var both = []string{"openai", "anthropic"}

// openAIClients are OpenAI's own, in JavaScript as it was and as it is now.
func openAIClients(t *testing.T) (list []client) {
	t.Helper()
	for _, pkg := range []string{"openai", "openai-next"} {
		c := client{
			program: npm(t, pkg, "openai.mjs", pkg), dialect: "openai", ways: []string{"chat", "helper"}, from: both,
			streamError: "APIError", codes: true,
			refusals: map[int]string{429: "RateLimitError", 500: "InternalServerError", 529: "InternalServerError"},
		}.words("stop", "length", "tool_calls", "content_filter")
		list = append(list, c)
		c.dialect, c.from, c.codes = "passthrough", both[:1], false
		list = append(list, c)
	}
	return append(list, client{
		program: goSDK(t, "github.com/openai/openai-go/v3", "openai"), dialect: "openai", from: both,
		streamError: "*ssestream.StreamError", refusals: oneClass("openai.Error"),
	}.words("stop", "length", "tool_calls", "content_filter"))
}

// looseClients read the openai dialect and take what they find of it.
func looseClients(t *testing.T) (list []client) {
	t.Helper()
	for class, pkgs := range map[string][]string{
		"Error": {"@ai-sdk/openai", "ai"}, "StreamProviderError": {"ai-openai-next", "ai-next"},
	} {
		list = append(list, client{
			program: npm(t, pkgs[0], "ai-openai.mjs", pkgs...), dialect: "openai", ways: []string{"chat"}, from: both,
			noReasoning: "SDK drops it", textRefuses: true, oneChoice: true,
			streamError: class, codes: true, refusals: oneClass("APICallError"),
		}.words("stop", "length", "tool-calls", "content-filter"))
	}
	return append(
		list,
		client{
			program: npm(t, "@langchain/openai", "langchain.mjs"), dialect: "openai", ways: []string{"chat"}, from: both,
			oneChoice: true, noRefusal: true, streamError: "APIError", codes: true,
			refusals: map[int]string{429: "RateLimitError", 500: "InternalServerError", 529: "InternalServerError"},
		}.words("stop", "length", "tool_calls", "content_filter"),
		client{
			program: goSDK(t, "github.com/sashabaranov/go-openai", "sashabaranov"), dialect: "openai", from: both,
			noRetry: "SDK has none", streamError: "openai.APIError", codes: true, refusals: oneClass("openai.APIError"),
		}.words("stop", "length", "tool_calls", "content_filter"),
	)
}

// strictClients check every chunk of the openai dialect against a schema, which
// an error frame does not meet.
func strictClients(t *testing.T) []client {
	t.Helper()
	return []client{
		client{
			program: npm(t, "@mistralai/mistralai", "mistral.mjs"), dialect: "openai", ways: []string{"chat"}, from: both,
			noReasoning: "SDK drops it", noTools: "whole calls only", noUsage: "SDK can not ask",
			noRefusal: true, wordless: true,
			streamError: "ZodError", refusals: oneClass("SDKError"),
		}.words("stop", "length", "tool_calls", "content_filter"),
		client{
			program: npm(t, "@openrouter/sdk", "openrouter.mjs"), dialect: "openai", ways: []string{"chat"}, from: both,
			noReasoning: "SDK drops it", oneChoice: true, wordless: true,
			streamError: "ZodError", refusals: oneClass("ResponseValidationError"),
		}.words("stop", "length", "tool_calls", "content_filter"),
	}
}

// otherClients read the other dialects.
func otherClients(t *testing.T) []client {
	t.Helper()
	list := []client{
		client{
			program: npm(t, "@anthropic-ai/sdk", "anthropic.mjs"), dialect: "anthropic", ways: []string{"messages"}, from: both,
			oneChoice: true, streamError: "APIError",
			refusals: map[int]string{429: "RateLimitError", 500: "InternalServerError", 529: "OverloadedError"},
		}.words("end_turn", "max_tokens", "tool_use", "refusal"),
		client{
			program: goSDK(t, "github.com/anthropics/anthropic-sdk-go", "anthropic"), dialect: "anthropic", from: both,
			oneChoice: true, streamError: "anthropic.Error", refusals: oneClass("anthropic.Error"),
		}.words("end_turn", "max_tokens", "tool_use", "refusal"),
		client{
			program: npm(t, "ollama", "ollama.mjs"), dialect: "passthrough", ways: []string{"chat"}, from: []string{"ollama"},
			noBeat: "none in NDJSON", noRetry: "SDK has none", streamError: "Error", refusals: oneClass("ResponseError"),
		}.words("stop", "length", "stop", ""),
	}
	for _, pkg := range []string{"ai", "ai-next"} {
		list = append(list, client{
			program: npm(t, pkg, "ai.mjs", pkg), dialect: "ai-sdk", ways: []string{"chat"}, from: both,
			noUsage: "not in the dialect", noRetry: "SDK has none", streamError: "Error", statusless: true,
		}.words("stop", "length", "tool-calls", "content-filter"))
	}
	return list
}

// routes is a Caddyfile with a route for each dialect, once more with a short
// heartbeat, and one with resume.
func routes(backend string) string {
	var b strings.Builder
	b.WriteString("ADDR {\n")
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk", "passthrough"} {
		for prefix, heartbeat := range map[string]string{dialect: "15s", dialect + "-beat": "50ms"} {
			fmt.Fprintf(&b, `	handle_path /%s/* {
		llm_stream {
			emit %s
			include reasoning tool_calls
			heartbeat %s
		}
		reverse_proxy %s
	}
`, prefix, dialect, heartbeat, backend)
		}
	}
	fmt.Fprintf(&b, `	handle_path /resumable/* {
		llm_stream {
			include reasoning tool_calls
			resume /llm
		}
		reverse_proxy %s
	}
}
`, backend)
	return b.String()
}

// stage is a Caddy before a backend, and a network that cuts connections.
type stage struct {
	backend *answers
	caddy   *rig.Caddy
	cutter  *cutter
}

// cutAfter is after how many bytes of an answer, header included, a connection
// is cut.
const cutAfter = 1500

func newStage(t *testing.T) *stage {
	t.Helper()
	needNode(t)
	s := &stage{backend: new(answers)}
	backend := rig.NewBackend(t, s.backend.ServeHTTP)
	s.caddy = rig.Start(t, routes(backend.Addr))
	s.cutter = newCutter(t, s.caddy.Addr, cutAfter, 1<<30)
	return s
}

// planned is a run and how its outcome is checked.
type planned struct {
	run
	answer   *answer
	scenario *scenario
}

// plan lists the runs of a client for backends of one format.
func (s *stage) plan(c *client, format string) []planned {
	var list []planned
	for _, way := range c.eachWay() {
		for i := range scenarios {
			sc := &scenarios[i]
			if !c.takes(sc) {
				continue
			}
			a := s.backend.add(sc.handler(format))
			name := strings.TrimPrefix(strings.ReplaceAll(way+"/"+sc.name, " ", "_"), "/")
			list = append(list, planned{
				run: run{
					Name: name, Way: way, URL: s.url(c, sc, a),
					Tools: sc.tools, MaxTokens: sc.maxTokens, Retries: sc.retries,
				},
				answer: a, scenario: sc,
			})
		}
	}
	return list
}

// eachWay returns the SDK's ways to ask; one without a name where there is but
// one.
func (c *client) eachWay() []string {
	if c.ways == nil {
		return []string{""}
	}
	return c.ways
}

// takes reports whether a scenario is one for the client.
func (c *client) takes(sc *scenario) bool {
	switch {
	case sc.reads && c.dialect == "passthrough",
		sc.tools && c.noTools != "",
		sc.beat && c.noBeat != "",
		sc.retries > 0 && c.noRetry != "":
		return false
	}
	return true
}

// url returns the base URL for a run.
func (s *stage) url(c *client, sc *scenario, a *answer) string {
	addr, route := s.caddy.Addr, c.dialect
	if sc.cut {
		addr = s.cutter.addr
	}
	if sc.beat {
		route += "-beat"
	}
	return "http://" + addr + "/" + route + "/" + a.key
}

func TestSDKs(t *testing.T) {
	s := newStage(t)
	t.Run("SDK", func(t *testing.T) {
		for _, c := range clients(t) {
			c.footnotes()
			for _, format := range c.from {
				t.Run(fmt.Sprintf("%s/%s/from %s", c.name, c.dialect, format), func(t *testing.T) {
					t.Parallel()
					s.try(t, &c, format)
				})
			}
		}
	})
}

// footnotes says in the table what there is nothing to be tested of.
func (c *client) footnotes() {
	for column, word := range map[string]string{
		"tools": c.noTools, "reasoning": c.noReasoning, "usage": c.noUsage, "retry": c.noRetry, "heartbeat": c.noBeat,
	} {
		if word != "" {
			table.say(c.row(), column, word)
		}
	}
}

func (c *client) row() string { return c.name + " | " + c.dialect }

// try makes all runs of a client in one process and checks them.
func (s *stage) try(t *testing.T, c *client, format string) {
	t.Helper()
	list := s.plan(c, format)
	runs := make([]run, len(list))
	for i := range list {
		runs[i] = list[i].run
	}
	outcomes := c.do(t, runs)
	for _, p := range list {
		ok := t.Run(p.Name, func(t *testing.T) {
			got, said := outcomes[p.Name]
			if !said {
				t.Fatal("nothing came")
			}
			p.scenario.check(t, c, &got, p.answer.calls.Load())
		})
		table.add(c.row(), p.scenario.columns, ok)
	}
}

// The runs with heartbeats would prove nothing without any.
func TestHeartbeatsCome(t *testing.T) {
	s := newStage(t)
	slow := scenarios[0]
	for _, sc := range scenarios {
		if sc.beat {
			slow = sc
		}
	}
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk", "passthrough"} {
		a := s.backend.add(slow.handler("openai"))
		resp, err := http.Post("http://"+s.caddy.Addr+"/"+dialect+"-beat/"+a.key+"/v1/chat/completions",
			"application/json", strings.NewReader(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		if err := resp.Write(&body); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(body.String(), ": ping\n"); n < slow.options.Tokens {
			t.Errorf("%s: %d heartbeats", dialect, n)
		}
	}
}
