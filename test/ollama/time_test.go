//go:build ollama

package ollama_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// longPrompt takes the slow model a second to read, in which Ollama sends not
// even a header. It is new each time, because Ollama remembers what it has read.
func longPrompt() string {
	return fmt.Sprintf("%d %s", time.Now().UnixNano(), strings.Repeat("wait for it, ", 100))
}

// Before its first token the server is silent. The client gets heartbeats, and
// then the whole answer.
func TestSlowModel(t *testing.T) {
	const heartbeat = 50 * time.Millisecond
	c := serve(t, everything+"\nheartbeat 50ms\ntimeouts {\nfirst_token 1m\nbetween_tokens 20s\n}")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			warm(t, slow)
			begin := time.Now()
			resp := ask(t, c.Addr, e, question{model: slow, prompt: longPrompt(), limit: 30})
			header := time.Since(begin)
			fr := rig.NewFrameReader(resp.Body)
			a := new(rig.Answer)
			if err := a.Add(frame(t, fr)); err != nil {
				t.Fatal(err)
			}
			first := time.Since(begin)
			if header > first/2 || fr.Comments < 3 || fr.Comments > int(first/heartbeat) {
				t.Errorf("a header after %v and %d heartbeats before the first token after %v", header, fr.Comments, first)
			}
			follow(t, fr, a)
			if a.Done == nil || !strings.HasPrefix(tinymodel.Answer(), a.Text) {
				t.Errorf("%+v after %q", a.Error, a.Text)
			}
		})
	}
}

// A first token that takes too long is an HTTP status, and the server is told
// to stop.
func TestFirstTokenTimeout(t *testing.T) {
	const limit = 150 * time.Millisecond
	c := serve(t, "timeouts {\nfirst_token 150ms\n}")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, slow)
			w := watchOllama()
			begin := time.Now()
			body := e.body(question{model: slow, prompt: longPrompt()}, true)
			resp := send(t.Context(), t, http.MethodPost, "http://"+c.Addr+e.path, body)
			if took := time.Since(begin); took < limit || took > limit+time.Second {
				t.Errorf("after %v", took)
			}
			equal(t, "status", resp.StatusCode, http.StatusGatewayTimeout)
			var got struct{ Error rig.Error }
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			equal(t, "code", got.Error.Code, "first_token_timeout")
			w.ends(t, e.path)
			idle(t, runner, patience) // the prompt it reads to its end, whatever the client does
		})
	}
}

// The same after a heartbeat is an error frame.
func TestFirstTokenTimeoutAfterHeartbeats(t *testing.T) {
	c := serve(t, "heartbeat 50ms\ntimeouts {\nfirst_token 200ms\n}")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			warm(t, slow)
			got := rig.ReadAnswer(t, ask(t, c.Addr, e, question{model: slow, prompt: longPrompt()}).Body)
			if got.Error == nil {
				t.Fatalf("it is done: %+v", got.Done)
			}
			equal(t, "code", got.Error.Code, "first_token_timeout")
			if got.Comments < 2 {
				t.Errorf("%d heartbeats", got.Comments)
			}
		})
	}
}

// Of a client that leaves while the prompt is read, Ollama is told as well.
func TestClientLeavesBeforeTheFirstToken(t *testing.T) {
	c := serve(t, "")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, slow)
			w := watchOllama()
			ctx, leave := context.WithCancel(t.Context())
			replies := askAside(ctx, t, c, e, question{model: slow, prompt: longPrompt()})
			w.begins(t)
			busy(t, runner)
			resume := pause(t, runner) // so that it is not the first token that tells
			leave()
			if r := <-replies; r.err == nil {
				t.Fatal("it has answered ", r.resp.Status)
			}
			w.ends(t, e.path)
			resume()
			idle(t, runner, patience) // the prompt it reads to its end, whatever the client does
		})
	}
}

// A runner that stops for a while, as on a machine that swaps, costs nothing
// but time; the client gets heartbeats.
func TestPause(t *testing.T) {
	c := serve(t, everything+"\nheartbeat 100ms")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, slow)
			fr := rig.NewFrameReader(ask(t, c.Addr, e, question{model: slow, prompt: "Grüezi", limit: 30}).Body)
			a := new(rig.Answer)
			if err := a.Add(frame(t, fr)); err != nil {
				t.Fatal(err)
			}
			resume := pause(t, runner)
			time.AfterFunc(time.Second, resume)
			follow(t, fr, a)
			if a.Done == nil || fr.Comments < 5 || !strings.HasPrefix(tinymodel.Answer(), a.Text) {
				t.Errorf("%+v with %d heartbeats after %q", a.Error, fr.Comments, a.Text)
			}
		})
	}
}

// One that stops for good is given up, and Ollama is told to stop.
func TestBetweenTokensTimeout(t *testing.T) {
	c := serve(t, everything+"\ntimeouts {\nbetween_tokens 400ms\n}")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, slow)
			w := watchOllama()
			fr := rig.NewFrameReader(ask(t, c.Addr, e, question{model: slow, prompt: tinymodel.AskLoop}).Body)
			a := new(rig.Answer)
			if err := a.Add(frame(t, fr)); err != nil {
				t.Fatal(err)
			}
			resume := pause(t, runner)
			follow(t, fr, a)
			if a.Error == nil {
				t.Fatalf("it is done: %+v", a.Done)
			}
			equal(t, "code", a.Error.Code, "between_tokens_timeout")
			w.ends(t, e.path)
			resume()
			idle(t, runner, soon)
		})
	}
}
