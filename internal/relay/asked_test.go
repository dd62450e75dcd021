package relay

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestWhatABodyAsks(t *testing.T) {
	for body, want := range map[string]asked{
		`{"model":"gpt-x","stream":true,"stream_options":{"include_usage":true}}`:                {asksForStream, true, "gpt-x", 0},
		`{"messages":[{"model":"no"}],"metadata":{"model":"no"},"model" : "yes","stream":false}`: {asksForWhole, false, "yes", 0},
		`{"model":5,"stream":"true","x":{"y":{"include_usage":true}}}`:                           {},
		`{"model":"` + strings.Repeat("m", 129) + `","n":3}`:                                     {choices: 3},
		`{"generationConfig":{"candidateCount":2},"x":{"n":9}}`:                                  {choices: 2},
		`{"model":"a\\"b"}`:     {},
		`{"a":"model","b":"x"}`: {},
	} {
		if got := askedOf([]byte(body), ""); got != want {
			t.Errorf("%s asks %+v", body, got)
		}
	}
}

func TestWantsStream(t *testing.T) {
	cases := map[string]struct {
		path, accept, body string
		want               bool
	}{
		"said":                {"/v1/chat/completions", "", `{"model":"m","stream":true}`, true},
		"said last":           {"/v1/chat/completions", "", `{"messages":[{"content":"{\"stream\":false}"}],"stream" : true }`, true},
		"not":                 {"/v1/chat/completions", "", `{"model":"m"}`, false},
		"denied":              {"/v1/chat/completions", "", `{"stream":false,"x":true}`, false},
		"in a nested object":  {"/v1/chat/completions", "", `{"a":{"stream":true},"b":[{"stream":true}]}`, false},
		"in a string":         {"/v1/chat/completions", "", `{"a":"\"stream\":true"}`, false},
		"as a value":          {"/v1/chat/completions", "", `{"a":"stream","b":true}`, false},
		"longer key":          {"/v1/chat/completions", "", `{"stream_options":true,"xstream":true}`, false},
		"as text":             {"/v1/chat/completions", "", `{"stream":"true"}`, false},
		"in an array":         {"/v1/chat/completions", "", `["stream",true]`, false},
		"no JSON":             {"/v1/chat/completions", "", `stream=true`, false},
		"nothing":             {"/v1/chat/completions", "", ``, false},
		"by Accept":           {"/v1/chat/completions", "text/event-stream;q=0.9", ``, true},
		"as one of two types": {"/v1/chat/completions", "application/json, text/event-stream", ``, false},
		"by a wildcard":       {"/v1/chat/completions", "*/*", ``, false},
		"by a path":           {"/v1beta/models/g:streamGenerateContent", "", `{}`, true},
		"Ollama":              {"/api/chat", "", `{}`, true},
		"Ollama, denied":      {"/api/generate", "", `{"stream": false}`, false},
		"Ollama, other":       {"/api/tags", "", `{}`, false},
		"after a long prompt": {"/v1/chat/completions", "", `{"p":"` + strings.Repeat("x", 1<<10) + `","stream":true}`, true},
		"after megabytes":     {"/v1/chat/completions", "", `{"p":"` + strings.Repeat("x", 3<<20) + `","stream":true}`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", tc.accept)
			if got := wantsStream(&Request{Request: r, Path: tc.path}, askedOf([]byte(tc.body), "").stream); got != tc.want {
				t.Errorf("the whole body says %v", got)
			}
			scan := newBodyScan("")
			for i := range len(tc.body) {
				scan.Write([]byte{tc.body[i]})
			}
			scan.end()
			said := scan.said
			if got := wantsStream(&Request{Request: r, Path: tc.path}, said.stream); got != tc.want {
				t.Errorf("as it passes it says %v", got)
			}
		})
	}
}

// DashScope's clients ask with a header field of their own.
func TestDashScopeAsksInItsHeader(t *testing.T) {
	for value, want := range map[string]bool{"enable": true, "Enable": true, "disable": false, "": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/services/aigc/text-generation/generation", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-DashScope-SSE", value)
		if got := wantsStream(&Request{Request: r, Path: r.URL.Path}, unsaid); got != want {
			t.Errorf("%q asks for a stream: %v", value, got)
		}
	}
}

// A compressed body is looked through as well; one in a coding that is not known
// says nothing, and one that is broken what it has said.
func TestCompressedBodiesAreLookedThrough(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","messages":[],"stream":true}`
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		coding string
		body   []byte
		want   wish
	}{
		"gzip":             {"gzip", zipped.Bytes(), asksForStream},
		"zstd":             {"zstd", zw.EncodeAll([]byte(body), nil), asksForStream},
		"identity":         {"identity", []byte(body), asksForStream},
		"unknown":          {"br", zipped.Bytes(), unsaid},
		"not what it says": {"gzip", []byte(body), unsaid},
	} {
		if got := askedOf(tc.body, tc.coding).stream; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
