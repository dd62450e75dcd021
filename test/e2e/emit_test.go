package e2e_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// body reads a whole body and how it ends.
func body(t *testing.T, resp *http.Response) (string, error) {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// What a client gets of the same stream in each dialect, and how a failure in
// mid-stream ends it. The SDKs' own reading is tested under test/sdk.
func TestDialects(t *testing.T) {
	usage := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	finish, _, _ := strings.Cut(rig.Stop, "data: [DONE]")
	good := rig.Chunk("Hel") + rig.Chunk("lo") + finish + usage + "data: [DONE]\n\n"
	for dialect, tc := range map[string]struct {
		contentType string
		whole       []string // in order
		failed      []string
	}{
		"plain": {"text/plain", []string{"Hello"}, []string{"Hel"}},
		"openai": {
			"text/event-stream",
			[]string{`"role":"assistant"`, `"content":"Hel"`, `"content":"lo"`, `"finish_reason":"stop"`, `"prompt_tokens":3`, "data: [DONE]"},
			[]string{`"content":"Hel"`, `data: {"error":{`, `"code":"upstream_truncated"`},
		},
		"anthropic": {
			"text/event-stream",
			[]string{"event: message_start", `"model":"m"`, `"text_delta","text":"Hel"`, `"stop_reason":"end_turn"`, "event: message_stop"},
			[]string{"event: message_start", `"text":"Hel"`, "event: error", `"type":"error"`},
		},
		"ai-sdk": {
			"text/event-stream",
			[]string{`"type":"start"`, `"type":"text-delta"`, `"delta":"Hel"`, `"type":"text-end"`, `"type":"finish"`, "[DONE]"},
			[]string{`"delta":"Hel"`, `"type":"error"`},
		},
	} {
		for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm\n", "tied": "slow_client disconnect\n"} {
			t.Run(dialect+" "+mode, func(t *testing.T) {
				c, _ := serve(t, options+"emit "+dialect, whole(good))
				resp := post(`{"stream":true,"stream_options":{"include_usage":true}}`).do(t, c)
				got, err := body(t, resp)
				if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), tc.contentType) {
					t.Errorf("%s: %v", resp.Header.Get("Content-Type"), err)
				}
				inOrder(t, got, tc.whole)

				sent := make(chan struct{})
				c, _ = serve(t, options+"emit "+dialect, func(w http.ResponseWriter, _ *http.Request) {
					rig.EventStream(w)
					rig.Say(w, rig.Chunk("Hel"))
					<-sent
				})
				resp = post(`{"stream":true}`).do(t, c)
				close(sent)
				got, err = body(t, resp)
				inOrder(t, got, tc.failed)
				if aborted := errors.Is(err, io.ErrUnexpectedEOF); aborted != (dialect != "ai-sdk") {
					t.Errorf("a failed response ends with %v", err)
				}
				if strings.Contains(got, "[DONE]") && dialect == "openai" {
					t.Error("a failed response is said to be done")
				}
			})
		}
	}
}

func inOrder(t *testing.T, got string, parts []string) {
	t.Helper()
	rest := got
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("no %s in its place in\n%s", part, got)
		}
		rest = after
	}
}

// The SDK calls of OpenAI's other endpoints expect their own format.
func TestOpenAIDialectLeavesOtherEndpointsAlone(t *testing.T) {
	c, _ := serve(t, "emit openai", whole("data: {\"type\":\"response.created\"}\n\n"))
	got, _ := body(t, request{method: "POST", path: "/v1/responses", body: "{}"}.do(t, c))
	equal(t, "body", got, "data: {\"type\":\"response.created\"}\n\n")
}

// A failure before the first frame has the shape that the SDK reads.
func TestRefusalsInTheDialect(t *testing.T) {
	failing := whole(`data: {"error":{"message":"busy","type":"overloaded_error"}}` + "\n\n")
	c, _ := serve(t, "emit anthropic", failing)
	resp := post(`{"stream":true}`).do(t, c)
	equal(t, "status", resp.StatusCode, 529)
	got, _ := body(t, resp)
	if !strings.HasPrefix(got, `{"type":"error","error":{`) {
		t.Error(got)
	}
}
