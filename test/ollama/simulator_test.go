//go:build ollama

package ollama_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// simulate starts a simulator that has Ollama's ways, and returns its address.
func simulate(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(&llmsim.Backend{Options: llmsim.Options{Tokens: 30, Server: llmsim.ServerOllama}})
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// sameResponse compares a response of the simulator with one of the server, and
// expects both to end in good order.
func sameResponse(t *testing.T, sim, direct *http.Response) {
	t.Helper()
	sameShape(t, readShape(t, sim, nil), readShape(t, direct, nil))
	equal(t, "status", sim.StatusCode, direct.StatusCode)
	for _, name := range []string{"Content-Type", "Cache-Control"} {
		equal(t, name, sim.Header.Get(name), direct.Header.Get(name))
	}
}

func readShape(t *testing.T, resp *http.Response, begun []byte) []string {
	t.Helper()
	return shape(t, resp.Header.Get("Content-Type"), string(begun)+whole(t, resp))
}

// eachForm runs a test for both ways to answer.
func eachForm(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Helper()
	for name, stream := range map[string]bool{"stream": true, "whole": false} {
		t.Run(name, func(t *testing.T) { test(t, stream) })
	}
}

// simulations are what the simulator is asked, and for how much reasoning where
// the model thinks.
var simulations = map[string]struct {
	question  question
	reasoning int // tokens
}{
	"text":             {question{model: tiny, prompt: "Grüezi"}, 0},
	"cut text":         {question{model: tiny, prompt: "Grüezi", limit: 20}, 0},
	"thought":          {question{model: tiny, prompt: tinymodel.AskThought}, 20},
	"cut thought":      {question{model: tiny, prompt: tinymodel.AskThought, limit: 10}, 20},
	"call":             {question{model: tiny, prompt: "weather?", tools: true}, 0},
	"call by thinking": {question{model: tiny, prompt: tinymodel.AskThought, tools: true}, 20},
}

// The simulator answers as Ollama does, but for the words of the model.
func TestSimulator(t *testing.T) {
	sim := simulate(t)
	for _, e := range endpoints {
		for name, s := range simulations {
			if s.question.tools && !e.takesTools {
				continue
			}
			t.Run(e.path+" "+name, func(t *testing.T) {
				eachForm(t, func(t *testing.T, stream bool) {
					reasoning := strconv.Itoa(s.reasoning)
					sameResponse(t, post(t, sim, e, s.question, stream, llmsim.HeaderReasoning, reasoning), post(t, ollama.addr, e, s.question, stream))
				})
			})
		}
	}
}

// post asks a question at an address, without a Caddy between.
func post(t *testing.T, addr string, e endpoint, q question, stream bool, header ...string) *http.Response {
	t.Helper()
	return send(t.Context(), t, http.MethodPost, "http://"+addr+e.path, e.body(q, stream), header...)
}

// Both are silent until the first token, without even a header.
func TestSimulatorHeaders(t *testing.T) {
	sim := simulate(t)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			warm(t, slow)
			for _, addr := range []string{sim, ollama.addr} {
				begin := time.Now()
				resp := post(t, addr, e, question{model: slow, prompt: longPrompt(), limit: 5}, true, llmsim.HeaderTTFT, "300ms")
				header := time.Since(begin)
				if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if first := time.Since(begin); header < first*3/4 {
					t.Errorf("%s: a header after %v and the first token after %v", addr, header, first)
				}
			}
		})
	}
}

// It breaks off as Ollama does when the process dies that runs the model.
func TestSimulatorCrash(t *testing.T) {
	sim := simulate(t)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, tiny)
			q := question{model: tiny, prompt: tinymodel.AskLoop}
			direct := post(t, ollama.addr, e, q, true)
			begun := make([]byte, 2000) // some tokens, for all the first events
			if _, err := io.ReadFull(direct.Body, begun); err != nil {
				t.Fatal(err)
			}
			kill(t, runner)
			crashed := post(t, sim, e, q, true, llmsim.HeaderFault, string(llmsim.FaultCrash), llmsim.HeaderFaultAt, "20")
			sameShape(t, readShape(t, crashed, nil), readShape(t, direct, begun))
			equal(t, "status", crashed.StatusCode, direct.StatusCode)
		})
	}
}

// Before the first token that is an HTTP error.
func TestSimulatorCrashBeforeTheFirstToken(t *testing.T) {
	sim := simulate(t)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			eachForm(t, func(t *testing.T, stream bool) {
				q := question{model: slow, prompt: longPrompt()}
				crashed := post(t, sim, e, q, stream, llmsim.HeaderFault, string(llmsim.FaultCrash))
				sameResponse(t, crashed, postAndKill(t, ollama.addr, e, stream))
			})
		})
	}
}
