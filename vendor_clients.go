package llmstream

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// vendorClient is a program that reads a vendor's format and no other: where it
// gets text deltas it shows an empty answer, or makes the call again and again.
type vendorClient struct {
	name string
	emit string // what it reads
	// agent is a part of its User-Agent, in lower case.
	agent string
	// bearer says that the User-Agent is that of many programs, of which those
	// are meant that ask for chat completions with a key.
	bearer bool
}

// vendorClients are those that are known; the first that fits counts. docs/recipes.md
// has the same list for people.
var vendorClients = []vendorClient{
	{name: "LangChain", emit: emit.DialectOpenAI, agent: "langchainjs-openai/"},
	{name: "opencode", emit: emit.DialectOpenAI, agent: "opencode/"},
	{name: "Codex", emit: emit.DialectPassthrough, agent: "codex_"},
	{name: "Claude Code", emit: emit.DialectAnthropic, agent: "claude-cli/"},
	{name: "gemini-cli", emit: emit.DialectPassthrough, agent: "geminicli/"},
	{name: "Google's SDK", emit: emit.DialectPassthrough, agent: "google-genai-sdk/"},
	{name: "Ollama's client", emit: emit.DialectPassthrough, agent: "ollama-"},
	{name: "Mistral's SDK", emit: emit.DialectOpenAI, agent: "mistral-client-"},
	{name: "Anthropic's SDK", emit: emit.DialectAnthropic, agent: "ai-sdk/anthropic/"},
	{name: "Vercel's AI SDK", emit: emit.DialectOpenAI, agent: "ai-sdk/"},
	{name: "Anthropic's SDK", emit: emit.DialectAnthropic, agent: "anthropic/"},
	{name: "OpenAI's SDK", emit: emit.DialectOpenAI, agent: "openai/"},
	{name: "go-openai", emit: emit.DialectOpenAI, agent: "go-http-client/", bearer: true},
}

// vendorClientOf returns the place of the program that has sent a request in the
// list, -1 where it is none of them.
func vendorClientOf(r *http.Request) int {
	agent := strings.ToLower(r.UserAgent())
	for i := range vendorClients {
		c := &vendorClients[i]
		if !strings.Contains(agent, c.agent) {
			continue
		}
		if !c.bearer || strings.HasSuffix(r.URL.Path, "/chat/completions") && strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			return i
		}
	}
	return -1
}

// warnEvery is how often a client that gets the wrong dialect is named in the log.
const warnEvery = time.Hour

// emitWarnings remembers when each known client was named last, in Unix seconds.
type emitWarnings struct{ last []atomic.Int64 }

func newEmitWarnings() *emitWarnings {
	return &emitWarnings{make([]atomic.Int64, len(vendorClients))}
}

// answered looks at a stream in the dialect text that was sent, and warns where
// its client cannot read it.
func (e *emitWarnings) answered(r *http.Request, logger *zap.Logger) {
	i := vendorClientOf(r)
	if i < 0 {
		return
	}
	now, last := time.Now().Unix(), e.last[i].Load()
	if last != 0 && now-last < int64(warnEvery/time.Second) || !e.last[i].CompareAndSwap(last, now) {
		return
	}
	c := &vendorClients[i]
	logger.Warn("a client was sent text deltas and reads a vendor's format; set emit on this route",
		zap.String("client", c.name), zap.String("emit", c.emit), zap.String("user_agent", r.UserAgent()), zap.String("path", originalPath(r)))
}
