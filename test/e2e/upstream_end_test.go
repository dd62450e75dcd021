package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// The client leaves before the header, before the first token and in
// mid-stream: the upstream is cancelled within 100 ms (litellm#30244,
// new-api#4186, vllm#9428).
func TestClientLeaves(t *testing.T) {
	stages := map[string]func(http.ResponseWriter){
		"before the header":      func(http.ResponseWriter) {},
		"before the first token": func(w http.ResponseWriter) { rig.EventStream(w); rig.Say(w, ": wait\n\n") },
		"in mid-stream":          func(w http.ResponseWriter) { rig.EventStream(w); rig.Say(w, rig.Chunk("a")) },
	}
	for stage, begin := range stages {
		t.Run(stage, func(t *testing.T) {
			here := make(chan struct{})
			left := make(chan time.Time, 1)
			c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				begin(w)
				close(here)
				<-r.Context().Done()
				left <- time.Now()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr+chatPath, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				done <- err
			}()
			<-here
			cancelled := time.Now()
			cancel()
			select {
			case at := <-left:
				if d := at.Sub(cancelled); d > 100*time.Millisecond {
					t.Errorf("the upstream was cancelled after %v", d)
				}
			case <-time.After(patience):
				t.Fatal("the upstream was not cancelled")
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// The upstream dies: the client gets what there was and an error frame
// (caddy#7845, caddy#8053, CLIProxyAPI#4905).
func TestUpstreamDies(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"reset": func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		},
		"abort":     func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"clean end": func(http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan struct{})
			c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				rig.EventStream(w)
				rig.Say(w, rig.Chunk("one"))
				<-sent
				end(w)
			})
			resp := ask(t, c, chatPath, nil)
			close(sent)
			a := rig.ReadAnswer(t, resp.Body)
			equal(t, "text", fmt.Sprint(a.Text, a.Cut), "one<nil>")
			if a.Error == nil || a.Error.Code != "upstream_truncated" || a.Error.Type != "api_error" || a.Error.ResponseID != resp.Header.Get("X-Response-Id") {
				t.Errorf("ended with %+v", a.Error)
			}
		})
	}
}

// What fails before the first frame is a status that SDKs can retry on.
func TestFailureBeforeTheFirstFrame(t *testing.T) {
	cases := map[string]struct {
		body   string
		status int
		code   string
	}{
		"error event":           {`data: {"error":{"message":"busy","type":"overloaded_error"}}` + "\n\ndata: [DONE]\n\n", 529, "upstream_error"},
		"error with a number":   {`data: {"error":{"message":"no","code":503}}` + "\n\n", 503, "upstream_error"},
		"nothing":               {"", 502, "upstream_truncated"},
		"comments only":         {": a\n\n: b\n\n", 502, "upstream_truncated"},
		"one event, too large":  {"data: " + strings.Repeat("x", 5000) + "\n\n", 502, "event_too_large"},
		"no event in max_event": {"data: " + strings.Repeat("x", 5000), 502, "event_too_large"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, "max_event 4KiB", whole(tc.body))
			resp := ask(t, c, chatPath, nil)
			var body struct{ Error rig.Error }
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			equal(t, "answer", fmt.Sprint(resp.StatusCode, " ", body.Error.Code), fmt.Sprint(tc.status, " ", tc.code))
			equal(t, "type", resp.Header.Get("Content-Type"), "application/json")
		})
	}
}

func TestErrorEventInMidStream(t *testing.T) {
	c, _ := serve(t, "", whole(rig.Chunk("one")+`data: {"error":{"message":"busy","type":"server_error"}}`+"\n\ndata: [DONE]\n\n"))
	a := rig.ReadAnswer(t, ask(t, c, chatPath, nil).Body)
	if a.Text != "one" || a.Done != nil || a.Error == nil || a.Error.Code != "upstream_error" {
		t.Errorf("%+v", a)
	}
	equal(t, "upstream", string(a.Error.Upstream), `{"message":"busy","type":"server_error"}`)
}

// An error that the next handler returns is for Caddy's error routes.
func TestDeadBackendReachesTheErrorRoutes(t *testing.T) {
	c := rig.Start(t, `ADDR {
		llm_stream
		reverse_proxy `+rig.FreeAddr(t)+`
		handle_errors {
			respond "sorry: {err.status_code}" {err.status_code}
		}
	}`)
	resp := ask(t, c, chatPath, nil)
	body, _ := io.ReadAll(resp.Body)
	equal(t, "answer", fmt.Sprint(resp.StatusCode, string(body)), "502sorry: 502")
}

// After its last event a backend may leave the connection open: the response
// is over all the same.
func TestBackendThatStaysOpen(t *testing.T) {
	left := make(chan struct{})
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("x")+rig.Stop)
		<-r.Context().Done()
		close(left)
	})
	a := rig.ReadAnswer(t, ask(t, c, chatPath, nil).Body)
	equal(t, "answer", fmt.Sprint(a.Text, a.Done.FinishReason, a.Cut), "xstop<nil>")
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the upstream is still open")
	}
}
