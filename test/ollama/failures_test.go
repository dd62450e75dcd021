//go:build ollama

package ollama_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// kill kills a runner.
func kill(t *testing.T, runner int) {
	t.Helper()
	if err := syscall.Kill(runner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// follow reads frames until one ends the response.
func follow(t *testing.T, fr *rig.FrameReader, a *rig.Answer) {
	t.Helper()
	for a.Done == nil && a.Error == nil {
		if err := a.Add(frame(t, fr)); err != nil {
			t.Fatal(err)
		}
	}
}

// When the process that runs the model dies, Ollama ends the body in good
// order: with an error in the APIs of its own, with an empty chunk or nothing in
// the others. None of that is a success.
func TestRunnerDies(t *testing.T) {
	c := serve(t, everything)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			runner := warm(t, tiny)
			fr := rig.NewFrameReader(ask(t, c.Addr, e, question{model: tiny, prompt: tinymodel.AskLoop}).Body)
			a := new(rig.Answer)
			if err := a.Add(frame(t, fr)); err != nil {
				t.Fatal(err)
			}
			kill(t, runner)
			follow(t, fr, a)
			if a.Error == nil {
				t.Fatalf("it is done: %+v", a.Done)
			}
			code := "upstream_truncated"
			if e.always { // the APIs of its own
				code = "upstream_error"
				if !strings.Contains(string(a.Error.Upstream), "an error was encountered while running the model") {
					t.Errorf("upstream is %s", a.Error.Upstream)
				}
			}
			equal(t, "code", a.Error.Code, code)
			checkVerses(t, a.Text)
		})
	}
}

// Where it dies before it has said anything, the server's own answer is one that
// a client can retry on.
func TestRunnerDiesBeforeTheFirstToken(t *testing.T) {
	c := serve(t, everything)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			resp := askAndKill(t, c, e)
			equal(t, "status", resp.StatusCode, http.StatusInternalServerError)
			if body := whole(t, resp); !strings.Contains(body, "model runner has unexpectedly stopped") {
				t.Errorf("it says %s", body)
			}
		})
	}
}

// Where a heartbeat has committed the response, it is an error frame.
func TestRunnerDiesAfterHeartbeats(t *testing.T) {
	c := serve(t, everything+"\nheartbeat 20ms")
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			got := rig.ReadAnswer(t, askAndKill(t, c, e).Body)
			if got.Error == nil {
				t.Fatalf("it is done: %+v", got.Done)
			}
			equal(t, "code", got.Error.Code, "upstream_error")
			if !strings.Contains(string(got.Error.Upstream), "model runner has unexpectedly stopped") {
				t.Errorf("upstream is %s", got.Error.Upstream)
			}
		})
	}
}

// askAndKill kills the runner while it reads the prompt, and returns the
// response.
func askAndKill(t *testing.T, c *rig.Caddy, e endpoint) *http.Response {
	t.Helper()
	return postAndKill(t, c.Addr, e, true)
}

// postAndKill does so at an address, and for an answer that streams or does not.
func postAndKill(t *testing.T, addr string, e endpoint, stream bool) *http.Response {
	t.Helper()
	runner := warm(t, slow)
	w := watchOllama()
	body := e.body(question{model: slow, prompt: longPrompt()}, stream)
	replies := postAside(t.Context(), t, "http://"+addr+e.path, body)
	w.begins(t)
	busy(t, runner)
	kill(t, runner)
	r := <-replies
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.resp.Body.Close() })
	return r.resp
}

// When Ollama itself dies, connections break.
func TestServerDies(t *testing.T) {
	s, err := startServer(os.Getenv("LLMSTREAM_OLLAMA"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	c := rig.Start(t, s.site(everything))
	runner := s.warm(t, slow)
	b := begin(t, c.Addr)
	kill(t, s.pid)
	_ = syscall.Kill(runner, syscall.SIGKILL) // nothing else does, where it has not ended by itself
	for i, e := range endpoints {
		if _, err := b.answers[i].read(b.readers[i], unlimited); err != nil {
			t.Fatalf("%s: %v", e.path, err)
		}
		a := b.answers[i]
		if a.Error == nil || !strings.HasPrefix(tinymodel.Answer(), a.Text) {
			t.Fatalf("%s: it is done: %+v after %q", e.path, a.Done, a.Text)
		}
		equal(t, "code", a.Error.Code, "upstream_truncated")
	}
	for _, e := range endpoints {
		resp := send(t.Context(), t, http.MethodPost, "http://"+c.Addr+e.path, e.body(long(), true))
		equal(t, "status without a server", resp.StatusCode, http.StatusBadGateway)
	}
}

// checkVerses checks that a text is a beginning of endless verses.
func checkVerses(t *testing.T, text string) {
	t.Helper()
	verses := strings.Repeat(tinymodel.Verse, 1+len(text)/len(tinymodel.Verse))
	if text == "" || !strings.HasPrefix(verses, text) {
		t.Errorf("text is %q", text)
	}
}

// No client of any dialect takes what a dead runner leaves for a whole response.
func TestRunnerDiesInEveryDialect(t *testing.T) {
	for name, dialect := range dialects {
		c := serve(t, "emit "+name)
		for _, e := range endpoints {
			if name == "openai" && leftAlone(e) {
				continue
			}
			t.Run(name+" "+e.path, func(t *testing.T) {
				runner := warm(t, tiny)
				resp := ask(t, c.Addr, e, question{model: tiny, prompt: tinymodel.AskLoop})
				kill(t, runner)
				body, err := io.ReadAll(resp.Body)
				if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				got := dialect.read(t, string(body))
				checkVerses(t, got.text)
				if name == "ai-sdk" {
					// Its error is a part of the stream, which then ends like any other.
					equal(t, "finish", got.finish, "")
					equal(t, "error", strings.Contains(string(body), `"type":"error"`), true)
					return
				}
				equal(t, "aborted", err != nil, true)
				equal(t, "finish", got.finish, "")
			})
		}
	}
}

// After thirty equal tokens Ollama gives up, and ends the body as if that were
// the end of the response, without saying why it stopped.
func TestStuckModel(t *testing.T) {
	c := serve(t, everything)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			got := rig.ReadAnswer(t, ask(t, c.Addr, e, question{model: tiny, prompt: tinymodel.AskStuck}).Body)
			if got.Error == nil {
				t.Fatalf("it is done: %+v", got.Done)
			}
			equal(t, "code", got.Error.Code, "upstream_truncated")
			if len(got.Text) < 10 || strings.Trim(got.Text, "~") != "" {
				t.Errorf("text is %q", got.Text)
			}
		})
	}
}

// What a client is told before any output is the server's own answer.
func TestRefusals(t *testing.T) {
	c := serve(t, everything)
	for _, e := range endpoints {
		t.Run(e.path, func(t *testing.T) {
			body := e.body(question{model: "unknown", prompt: "Grüezi"}, true)
			through := send(t.Context(), t, "POST", "http://"+c.Addr+e.path, body)
			direct := send(t.Context(), t, "POST", "http://"+ollama.addr+e.path, body)
			equal(t, "status", through.StatusCode, direct.StatusCode)
			equal(t, "whether it refuses", direct.StatusCode/100, 4)
			equal(t, "body", volatile.ReplaceAllString(whole(t, through), ""), volatile.ReplaceAllString(whole(t, direct), ""))
		})
	}
}

// A client that leaves stops the generation: Ollama has done with the request
// and its runner computes no more.
func TestClientLeaves(t *testing.T) {
	for name, options := range map[string]string{
		"attached":       "",
		"tied":           "slow_client disconnect",
		"resumable":      "resume /llm {\ngrace 300ms\n}\ndrain {\nspread 50ms\nretry 50ms\n}",
		"passed through": "emit passthrough",
	} {
		c := serve(t, options)
		for _, e := range endpoints {
			t.Run(name+" "+e.path, func(t *testing.T) {
				runner := warm(t, slow)
				w := watchOllama()
				resp := ask(t, c.Addr, e, question{model: slow, prompt: tinymodel.AskLoop})
				// What has come is a part of a stream that has no end.
				if _, err := io.ReadFull(resp.Body, make([]byte, 300)); err != nil {
					t.Fatal(err)
				}
				resume := pause(t, runner) // no write tells that no client is there
				_ = resp.Body.Close()
				w.ends(t, e.path)
				resume()
				idle(t, runner, soon)
			})
		}
	}
}
