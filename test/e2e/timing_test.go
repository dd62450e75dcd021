package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// script is a backend that pauses and says things in turn: a duration is a
// pause, a string is said. It sends its header with the first string.
func script(steps ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for _, step := range steps {
			switch step := step.(type) {
			case time.Duration:
				select {
				case <-time.After(step):
				case <-r.Context().Done():
					return
				}
			case string:
				rig.Say(w, step)
			}
		}
	}
}

// within checks that something took as long as it should, give or take 50 ms.
// What comes too late may be the machine's fault, which no test should judge:
// up to two seconds are only told. The moments themselves are tested to the
// nanosecond, with a clock that is not real, in package timeouts.
func within(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	switch d := got - want; {
	case d < -50*time.Millisecond, d > 2*time.Second:
		t.Errorf("%s took %v, not %v", what, got, want)
	case d > 50*time.Millisecond:
		t.Logf("%s took %v, not %v", what, got, want)
	}
}

// litellm#19909: the upstream has not answered at all.
func TestFirstTokenTimeoutBeforeTheHeader(t *testing.T) {
	closed := make(chan time.Time, 1)
	c, _ := serve(t, "timeouts {\nfirst_token 200ms\n}", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		closed <- time.Now()
	})
	at := time.Now()
	resp := post(`{"stream":true}`).do(t, c)
	equal(t, "status", resp.StatusCode, http.StatusGatewayTimeout)
	equal(t, "code", errorCode(t, resp), "first_token_timeout")
	within(t, "the answer", time.Since(at), 200*time.Millisecond)
	within(t, "closing the upstream", (<-closed).Sub(at), 200*time.Millisecond)
}

// What is no output of the model does not satisfy first_token; what is, does,
// though the client is not sent it.
func TestWhatCountsAsFirstToken(t *testing.T) {
	role := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	reasoning := `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n"
	tool := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}` + "\n\n"
	for name, tc := range map[string]struct {
		first string
		want  int
	}{
		"comments":    {strings.Repeat(": OPENROUTER PROCESSING\n\n", 17), 504},
		"a role":      {role, 504},
		"reasoning":   {reasoning, 200},
		"a tool call": {tool, 200},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, "timeouts {\nfirst_token 200ms\n}", script(tc.first, 400*time.Millisecond, rig.Chunk("x")+rig.Stop))
			equal(t, "status", post(`{"stream":true}`).do(t, c).StatusCode, tc.want)
		})
	}
}

// litellm#19184, Franklin#74: a gap after a late first token.
func TestBetweenTokensTimeout(t *testing.T) {
	c, _ := serve(t, "timeouts {\nfirst_token 2s\nbetween_tokens 300ms\n}",
		script(600*time.Millisecond, rig.Chunk("a"), time.Second, rig.Chunk("b")+rig.Stop))
	at := time.Now()
	a := rig.ReadAnswer(t, post(`{"stream":true}`).do(t, c).Body)
	within(t, "the end", time.Since(at), 900*time.Millisecond)
	if a.Text != "a" || a.Error == nil || a.Error.Code != "between_tokens_timeout" || a.Error.Type != "timeout_error" {
		t.Errorf("%q %+v", a.Text, a.Error)
	}
}

func TestTotalTimeout(t *testing.T) {
	steps := []any{}
	for range 20 {
		steps = append(steps, rig.Chunk("x"), 50*time.Millisecond)
	}
	c, _ := serve(t, "timeouts {\ntotal 400ms\n}", script(steps...))
	at := time.Now()
	a := rig.ReadAnswer(t, post(`{"stream":true}`).do(t, c).Body)
	within(t, "the end", time.Since(at), 400*time.Millisecond)
	if a.Error == nil || a.Error.Code != "total_timeout" {
		t.Errorf("%+v", a.Error)
	}
}

// The finish has been seen and the provider's own end never comes: that is a
// good end.
func TestFinishWithoutTerminator(t *testing.T) {
	finish, _, _ := strings.Cut(rig.Stop, "data: [DONE]")
	c, _ := serve(t, "timeouts {\nbetween_tokens 200ms\n}", script(rig.Chunk("x")+finish, 5*time.Second))
	a := rig.ReadAnswer(t, post(`{"stream":true}`).do(t, c).Body)
	if a.Done == nil || a.Done.FinishReason != "stop" {
		t.Errorf("%+v", a.Error)
	}
}

// A whole JSON answer is under total alone, and gets no heartbeat.
func TestJSONAnswersAreNotTimed(t *testing.T) {
	c, _ := serve(t, "heartbeat 50ms\ntimeouts {\nfirst_token 100ms\nbetween_tokens 100ms\n}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-time.After(300 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		rig.Say(w, `{"a":`)
		<-time.After(300 * time.Millisecond)
		rig.Say(w, `1}`)
	})
	resp := post(`{"model":"m"}`).do(t, c)
	body, err := io.ReadAll(resp.Body)
	equal(t, "answer", fmt.Sprint(resp.StatusCode, string(body), err), `200{"a":1}<nil>`)
}

// litellm#34819, bifrost#5010: silence before the upstream's header.
func TestHeartbeatsBeforeTheHeader(t *testing.T) {
	for name, q := range map[string]request{
		"by the body":   post(`{"model":"m","stream":true}`),
		"by the header": post(`{}`, "Accept", "text/event-stream"),
		"by the path":   {method: "POST", path: "/api/chat", body: `{}`},
	} {
		for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm\n", "tied": "slow_client drop\n"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				c, _ := serve(t, options+"heartbeat 100ms", func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-time.After(350 * time.Millisecond)
					rig.EventStream(w)
					rig.Say(w, rig.Chunk("x")+rig.Stop)
				})
				a := rig.ReadAnswer(t, q.do(t, c).Body)
				equal(t, "text", a.Text, "x")
				if a.Comments < 2 {
					t.Errorf("%d heartbeats", a.Comments)
				}
			})
		}
	}
}

// A failure after a heartbeat is an error frame under 200, with what the
// upstream said.
func TestFailureAfterAHeartbeat(t *testing.T) {
	late := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-time.After(150 * time.Millisecond)
			answer(w, r)
		}
	}
	for name, tc := range map[string]struct {
		answer         http.HandlerFunc
		code, upstream string
	}{
		"error status": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			rig.Say(w, `{"error": {"message": "slow down"}}`)
		}, "upstream_error", `{"message":"slow down"}`},
		"no stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			rig.Say(w, `{"choices":[]}`)
		}, "invalid_upstream", ""},
		"nothing": {whole(""), "upstream_truncated", ""},
	} {
		for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm\n", "tied": "slow_client drop\n"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				c, _ := serve(t, options+"heartbeat 50ms", late(tc.answer))
				resp := post(`{"stream":true}`).do(t, c)
				equal(t, "status", resp.StatusCode, http.StatusOK)
				a := rig.ReadAnswer(t, resp.Body)
				if a.Error == nil || a.Error.Code != tc.code || string(a.Error.Upstream) != tc.upstream {
					t.Errorf("%+v", a.Error)
				}
			})
		}
	}
}

func TestHeartbeatsInMidStream(t *testing.T) {
	steps := []any{rig.Chunk("a"), 250 * time.Millisecond, rig.Chunk("b") + rig.Stop}
	c, _ := serve(t, "heartbeat 100ms", script(steps...))
	a := rig.ReadAnswer(t, post(`{}`).do(t, c).Body)
	equal(t, "answer", fmt.Sprint(a.Text, a.Comments), "ab2")

	c, _ = serve(t, "heartbeat off", script(steps...))
	a = rig.ReadAnswer(t, post(`{}`).do(t, c).Body)
	equal(t, "answer without", fmt.Sprint(a.Text, a.Comments), "ab0")

	c, _ = serve(t, "emit passthrough\nheartbeat 100ms", script(steps...))
	body, err := io.ReadAll(post(`{}`).do(t, c).Body)
	equal(t, "passed through", fmt.Sprint(string(body), err),
		rig.Chunk("a")+": ping\n: ping\n"+rig.Chunk("b")+rig.Stop+"<nil>")
}

// Time that the upstream is held back by its client does not count.
func TestBackpressureDoesNotCount(t *testing.T) {
	big := strings.Repeat(rig.Chunk(strings.Repeat("x", 32<<10)), 200)
	c, _ := serve(t, "timeouts {\nbetween_tokens 300ms\n}", whole(big+rig.Stop))
	resp := post(`{"stream":true}`).do(t, c)
	<-time.After(700 * time.Millisecond) // the client takes nothing
	a := rig.ReadAnswer(t, resp.Body)
	if a.Done == nil {
		t.Errorf("%+v", a.Error)
	}
}

// infra#2078, opencrabs#1678: slow, but never silent for too long.
func TestLongStreamsComplete(t *testing.T) {
	steps := []any{}
	for range 10 {
		steps = append(steps, 100*time.Millisecond, rig.Chunk("x"))
	}
	c, _ := serve(t, "timeouts {\nfirst_token 300ms\nbetween_tokens 300ms\n}", script(append(steps, rig.Stop)...))
	equal(t, "text", rig.ReadAnswer(t, post(`{"stream":true}`).do(t, c).Body).Text, strings.Repeat("x", 10))
}
