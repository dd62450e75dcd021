package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// formats are the wire formats that the handler decodes: the content type that
// a backend answers with, and a request path of it.
var formats = map[string]struct{ contentType, path string }{
	"openai-chat":        {"text/event-stream; charset=utf-8", "/v1/chat/completions"},
	"anthropic-messages": {"text/event-stream; charset=utf-8", "/v1/messages"},
	"ollama-chat":        {"application/x-ndjson", "/api/chat"},
	"ollama-generate":    {"application/x-ndjson", "/api/generate"},

	"openai-completions":  {"text/event-stream", "/v1/completions"},
	"openai-responses":    {"text/event-stream; charset=utf-8", "/v1/responses"},
	"openai-assistants":   {"text/event-stream", "/v1/threads/t/runs"},
	"gemini":              {"text/event-stream", "/v1beta/models/g:streamGenerateContent"},
	"gemini-interactions": {"text/event-stream", "/v1beta/interactions"},
	"cohere-v2":           {"text/event-stream", "/v2/chat"},
	"cohere-v1":           {"application/stream+json", "/v1/chat"},
	"bedrock-converse":    {"application/vnd.amazon.eventstream", "/model/m/converse-stream"},
	"bedrock-invoke":      {"application/vnd.amazon.eventstream", "/model/m/invoke-with-response-stream"},
	"tgi":                 {"text/event-stream", "/generate_stream"},
	"llamacpp-completion": {"text/event-stream", "/completion"},
	"watsonx":             {"text/event-stream", "/ml/v1/text/generation_stream"},
}

// replay is a backend that plays recordings, cut as the request says.
type replay struct {
	recordings map[string]corpus.Recording
}

func newReplay(recordings []corpus.Recording) *replay {
	p := &replay{recordings: make(map[string]corpus.Recording)}
	for _, rec := range recordings {
		p.recordings[rec.File] = rec
	}
	return p
}

func (p *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rec := p.recordings[r.Header.Get("X-Replay")]
	contentType := formats[rec.Format].contentType
	switch {
	case contentType == "":
		contentType = "text/event-stream"
	case strings.HasSuffix(rec.File, ".json"): // Gemini's array
		contentType = "application/json; charset=UTF-8"
	}
	w.Header().Set("Content-Type", contentType)
	body, rng := rec.Body, rand.New(rand.NewPCG(1, uint64(len(rec.Body))))
	for len(body) > 0 {
		n := len(body)
		switch r.Header.Get("X-Cut") {
		case "bytes":
			n = 1
		case "random":
			n = min(n, 1+rng.IntN(600))
		}
		_, _ = w.Write(body[:n])
		_ = http.NewResponseController(w).Flush()
		body = body[n:]
	}
}

func ask(t *testing.T, c *rig.Caddy, path string, header http.Header) *http.Response {
	t.Helper()
	return askFor(t, c, path, `{"stream":true}`, header)
}

func askFor(t *testing.T, c *rig.Caddy, path, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// Every recording yields its right answer, however the backend's bytes are
// cut, and what is no LLM stream comes through byte for byte.
func TestCorpusThroughCaddy(t *testing.T) {
	recordings := corpus.Load(t, append(keys(formats), "other")...)
	backend := rig.NewBackend(t, newReplay(recordings).ServeHTTP)
	c := rig.Start(t, `ADDR {
		llm_stream {
			include reasoning tool_calls
		}
		reverse_proxy `+backend.Addr+`
	}`)
	table := newScore()
	t.Run("recordings", func(t *testing.T) {
		for _, rec := range recordings {
			for _, cut := range []string{"whole", "bytes", "random"} {
				t.Run(rec.File+"/"+cut, func(t *testing.T) {
					t.Parallel()
					defer func() { table.add(rec.Format, cut, !t.Failed()) }()
					path := formats[rec.Format].path
					if path == "" {
						path = "/v1/other"
					}
					resp := askFor(t, c, path, bodyFor(rec), http.Header{"X-Replay": {rec.File}, "X-Cut": {cut}})
					if rec.Format == "other" {
						checkUntouched(t, rec, resp)
					} else {
						out := new(bytes.Buffer)
						checkRecording(t, rec, resp, out)
						if cut == "whole" {
							table.bytes(rec, out.Len())
						}
					}
				})
			}
		}
	})
	t.Logf("recordings right through Caddy\n%s", table.recordings())
	t.Logf("bytes from the backend and to the client\n%s", table.metadata())
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	sort.Strings(list)
	return list
}

func checkUntouched(t *testing.T, rec corpus.Recording, resp *http.Response) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, rec.Body) {
		t.Errorf("status %d and %d bytes, not the %d of the backend:\n%s", resp.StatusCode, len(got), len(rec.Body), got)
	}
}

func checkRecording(t *testing.T, rec corpus.Recording, resp *http.Response, raw *bytes.Buffer) {
	t.Helper()
	want := &rec.Want
	if resp.StatusCode != http.StatusOK {
		checkRefused(t, rec, resp)
		return
	}
	a := rig.ReadAnswer(t, io.TeeReader(resp.Body, raw))
	if a.Cut != nil {
		t.Fatal(a.Cut)
	}
	equal(t, "text", a.Text, want.Text)
	equal(t, "reasoning", a.Reasoning, want.Reasoning+want.ToolPlan)
	equal(t, "refusal", a.Refusal, want.Refusal)
	checkToolCalls(t, rec, a.ToolCalls)
	if want.Failed() {
		checkError(t, want, a.Error)
		return
	}
	if strings.Contains(rec.File, "x-truncated") {
		if a.Error == nil || a.Error.Code != "upstream_truncated" {
			t.Errorf("ended with %+v", a.Error)
		}
		return
	}
	if a.Done == nil {
		t.Fatalf("ended with %+v", a.Error)
	}
	checkDone(t, want, a.Done)
}

// checkRefused is for recordings that fail before any output.
func checkRefused(t *testing.T, rec corpus.Recording, resp *http.Response) {
	t.Helper()
	var body struct{ Error *rig.Error }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	if !rec.Want.Failed() || rec.Want.Text != "" {
		t.Fatalf("status %d: %+v", resp.StatusCode, body.Error)
	}
	checkError(t, &rec.Want, body.Error)
}

func checkError(t *testing.T, want *corpus.Want, got *rig.Error) {
	t.Helper()
	if got == nil || got.Code != "upstream_error" {
		t.Fatalf("no upstream_error: %+v", got)
	}
	var upstream, wanted map[string]any
	if json.Unmarshal(got.Upstream, &upstream) != nil || json.Unmarshal(want.Error, &wanted) != nil {
		t.Fatalf("upstream's error %s is not JSON", got.Upstream)
	}
	for member, value := range wanted { // the sidecars leave some members out
		equal(t, "error's "+member, fmt.Sprint(upstream[member]), fmt.Sprint(value))
	}
}

func checkDone(t *testing.T, want *corpus.Want, got *rig.Done) {
	t.Helper()
	native := got.ProviderFinishReason
	if native == "" {
		native = got.FinishReason
	}
	switch {
	case want.BlockReason != nil:
		equal(t, "finish reason", got.FinishReason, "content_filter")
	case want.FinishReason != nil:
		equal(t, "finish reason", native, *want.FinishReason)
	case !slices.Contains([]string{"stop", "tool_calls"}, got.FinishReason):
		t.Errorf("finish reason %q of a recording without one", got.FinishReason)
	}
	if (got.Usage == nil) != (want.Usage == nil) {
		t.Fatalf("usage is %+v, not %+v", got.Usage, want.Usage)
	}
	if want.Usage != nil {
		equal(t, "input tokens", count(got.Usage.InputTokens), count(want.Usage.Input))
		equal(t, "output tokens", count(got.Usage.OutputTokens), count(want.Usage.Output))
	}
}

func count(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%v\nnot\n%v", what, got, want)
	}
}

func checkToolCalls(t *testing.T, rec corpus.Recording, got []rig.ToolCall) {
	t.Helper()
	if len(got) != len(rec.Want.ToolCalls) {
		t.Fatalf("%d tool calls, not %d: %+v", len(got), len(rec.Want.ToolCalls), got)
	}
	for i, want := range rec.Want.ToolCalls {
		if want.ID != nil {
			equal(t, "tool id", got[i].ID, *want.ID)
		}
		if want.Name != nil {
			equal(t, "tool name", got[i].Name, *want.Name)
		}
		equal(t, "arguments", canonical(got[i].Arguments), canonical(want.Arguments))
	}
}

// canonical makes equal JSON equal text; what is no JSON stays as it is.
func canonical(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	out, err := json.Marshal(v)
	if err != nil {
		return s
	}
	return string(out)
}

// score counts what was right.
type score struct {
	mu    sync.Mutex
	right map[string]int
	all   map[string]int
	sizes map[string][4]int // files, bytes in, bytes out, text
}

func newScore() *score {
	return &score{right: map[string]int{}, all: map[string]int{}, sizes: map[string][4]int{}}
}

func (s *score) add(format, cut string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[format+"\t"+cut]++
	if ok {
		s.right[format+"\t"+cut]++
	}
}

func (s *score) bytes(rec corpus.Recording, out int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dialect := filepath.Dir(rec.File)
	v := s.sizes[dialect]
	s.sizes[dialect] = [4]int{v[0] + 1, v[1] + len(rec.Body), v[2] + out, v[3] + len(rec.Want.Text)}
}

func (s *score) recordings() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "format\tcut\tright\tof")
	for _, key := range keys(s.all) {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\n", key, s.right[key], s.all[key])
	}
	_ = w.Flush()
	return b.String()
}

func (s *score) metadata() string {
	var b strings.Builder
	_, _ = fmt.Fprintln(&b, "| backend | recordings | bytes in | bytes out | out / in |\n|---|--:|--:|--:|--:|")
	for _, dialect := range keys(s.sizes) {
		v := s.sizes[dialect]
		_, _ = fmt.Fprintf(&b, "| %s | %d | %d | %d | %.2f |\n", dialect, v[0], v[1], v[2], float64(v[2])/float64(v[1]))
	}
	return b.String()
}

// bodyFor is a request body that a recording may be the answer to.
func bodyFor(rec corpus.Recording) string {
	if !slices.Contains(rec.Want.Flags, "n>1") {
		return `{"stream":true}`
	}
	return `{"stream":true,"n":9,"num_generations":9}`
}
