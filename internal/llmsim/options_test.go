package llmsim_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

func TestHeadersOverrideOptions(t *testing.T) {
	b := &llmsim.Backend{Options: llmsim.Options{
		Tokens: 500, Interval: time.Hour, TTFT: time.Hour, Fault: llmsim.FaultDie, Status: 500,
	}}
	header := []string{
		llmsim.HeaderTokens, "6", llmsim.HeaderInterval, "0s", llmsim.HeaderTTFT, "0",
		llmsim.HeaderReasoning, "4", llmsim.HeaderFault, "none",
	}
	got := readOpenAI(t, post(b, "/v1/chat/completions", `{"stream":true}`, header...).Body.String())
	if got.text != llmsim.Text(6) || got.reasoning != llmsim.ReasoningText(4) || !got.ended {
		t.Errorf("%+v", got)
	}
	header = append(header, llmsim.HeaderFault, "error", llmsim.HeaderFaultAt, "5")
	got = readOpenAI(t, post(b, "/v1/chat/completions", `{"stream":true}`, header...).Body.String())
	if got.text != llmsim.Text(1) || got.failure == "" {
		t.Errorf("with a fault at token 5: %+v", got)
	}
	header = append(header, llmsim.HeaderFault, "status", llmsim.HeaderStatus, "429")
	if w := post(b, "/v1/chat/completions", `{"stream":true}`, header...); w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", w.Code)
	}
}

func TestServerHeaderOverridesServer(t *testing.T) {
	for _, c := range []struct {
		server llmsim.Server
		header string
		status int // at a path that only Ollama has
	}{
		{llmsim.ServerNone, "ollama", http.StatusOK},
		{llmsim.ServerOllama, "ollama", http.StatusOK},
		{llmsim.ServerOllama, "none", http.StatusNotFound},
		{llmsim.ServerNone, "none", http.StatusNotFound},
	} {
		b := &llmsim.Backend{Options: llmsim.Options{Server: c.server}}
		if w := post(b, "/v1/completions", `{}`, llmsim.HeaderServer, c.header); w.Code != c.status {
			t.Errorf("%q with %s: status %d, want %d", c.server, c.header, w.Code, c.status)
		}
	}
}

func TestParseServerListsTheNames(t *testing.T) {
	_, err := llmsim.ParseServer("vllm")
	for _, s := range []llmsim.Server{"none", llmsim.ServerOllama} {
		if !strings.Contains(err.Error(), string(s)) {
			t.Errorf("%v does not list %s", err, s)
		}
		if _, err := llmsim.ParseServer(string(s)); err != nil {
			t.Error(err)
		}
	}
}

func TestUnusableHeaderIs400(t *testing.T) {
	b := &llmsim.Backend{}
	for _, c := range []struct{ header, value string }{
		{llmsim.HeaderTokens, "-1"},
		{llmsim.HeaderTokens, "1000001"},
		{llmsim.HeaderTokens, "many"},
		{llmsim.HeaderTokens, ""},
		{llmsim.HeaderInterval, "40"},
		{llmsim.HeaderInterval, "-40ms"},
		{llmsim.HeaderTTFT, "soon"},
		{llmsim.HeaderReasoning, "1.5"},
		{llmsim.HeaderFault, "explode"},
		{llmsim.HeaderFaultAt, "-2"},
		{llmsim.HeaderStatus, "200"},
		{llmsim.HeaderServer, "vllm"},
	} {
		for _, d := range dialects {
			b.Options.Server = d.server
			w := post(b, d.path, d.streaming, c.header, c.value)
			if w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
				t.Errorf("%s %q at %s: status %d", c.header, c.value, d.path, w.Code)
			}
			var body struct {
				Error any `json:"error"`
			}
			decode(t, w.Body.String(), &body)
			if !strings.Contains(w.Body.String(), c.header) || body.Error == nil {
				t.Errorf("%s %q at %s: %s does not name the header", c.header, c.value, d.path, w.Body)
			}
		}
	}
	if s := b.Stats(); s.Started != 0 {
		t.Errorf("refused requests are counted: %+v", s)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		option  string
		options llmsim.Options
	}{
		{"tokens", llmsim.Options{Tokens: -1}},
		{"tokens", llmsim.Options{Tokens: llmsim.MaxTokens + 1}},
		{"reasoning", llmsim.Options{Reasoning: -1}},
		{"reasoning", llmsim.Options{Reasoning: llmsim.MaxTokens + 1}},
		{"interval", llmsim.Options{Interval: -1}},
		{"ttft", llmsim.Options{TTFT: -1}},
		{"fault_at", llmsim.Options{FaultAt: -1}},
		{"status", llmsim.Options{Status: 399}},
		{"status", llmsim.Options{Status: 600}},
		{"fault", llmsim.Options{Fault: "explode"}},
		{"server", llmsim.Options{Fault: llmsim.FaultEnd, Server: "vllm"}},
	} {
		if err := c.options.Validate(); !errors.Is(err, llmsim.ErrInvalid) || !strings.Contains(err.Error(), c.option) {
			t.Errorf("%+v: %v, want ErrInvalid naming %s", c.options, err, c.option)
		}
	}
	for _, options := range []llmsim.Options{
		{},
		{Tokens: llmsim.MaxTokens, Reasoning: llmsim.MaxTokens, Interval: time.Hour, TTFT: time.Hour},
		{Fault: llmsim.FaultStatus, Status: 599, Server: llmsim.ServerOllama},
	} {
		if err := options.Validate(); err != nil {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

func TestParseFaultListsTheNames(t *testing.T) {
	_, err := llmsim.ParseFault("explode")
	for _, f := range []llmsim.Fault{
		"none", llmsim.FaultDie, llmsim.FaultEnd, llmsim.FaultHang, llmsim.FaultError, llmsim.FaultErrorDone,
		llmsim.FaultCrash, llmsim.FaultMalformed, llmsim.FaultStatus, llmsim.FaultNoDone, llmsim.FaultSlowHeaders,
	} {
		if !strings.Contains(err.Error(), string(f)) {
			t.Errorf("%v does not list %s", err, f)
		}
		if _, err := llmsim.ParseFault(string(f)); err != nil {
			t.Error(err)
		}
	}
}
