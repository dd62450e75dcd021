package ingest_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
)

// What is no token stream passes with its status, header and trailers.
func TestOtherResponsesPassUntouched(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		header http.Header
		body   string
	}{
		"JSON":               {201, http.Header{"Content-Type": {"application/json"}, "Content-Length": {"7"}, "Etag": {"x"}}, `{"a":1}`},
		"an error":           {429, http.Header{"Content-Type": {"text/event-stream"}, "Retry-After": {"17"}}, "no"},
		"a page":             {200, http.Header{"Content-Type": {"text/html"}}, "<p>"},
		"no content":         {204, http.Header{"Content-Type": {"text/event-stream"}}, ""},
		"not modified":       {304, http.Header{"Etag": {"x"}}, ""},
		"the answer to HEAD": {200, http.Header{"Content-Type": {"application/json"}, "Content-Length": {"7"}}, ""},
		"a range":            {206, http.Header{"Content-Type": {"image/png"}, "Content-Range": {"bytes 1-2/7"}}, "ab"},
		"another protocol":   {101, http.Header{"Upgrade": {"echo"}}, ""},
		"another coding":     {200, http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {"br"}, "Content-Length": {"3"}}, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, call := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
				maps.Copy(w.Header(), tc.header)
				w.WriteHeader(tc.status)
				_, err := io.WriteString(w, tc.body)
				w.Header().Set("X-Trailer", "t")
				return err
			})
			p.want(t, "", "")
			equal(t, "status", p.out.passed.Status, tc.status)
			want := tc.header.Clone()
			want["X-Before"] = []string{"us"}
			if !maps.EqualFunc(p.out.passed.Header, want, slices.Equal) {
				t.Errorf("header %v, want %v", p.out.passed.Header, want)
			}
			equal(t, "body", p.out.Body(), tc.body)
			equal(t, "trailer", p.out.Header().Get("X-Trailer"), "t")
			if tc.header.Get("Content-Type") != "application/json" { // which may be a stream under a wrong label
				equal(t, "stream", p.out.passed.Stream, false)
			}
			equal(t, "finished", p.out.finished, true)
			if call.Aborted || call.Err != nil || p.HasEnded() || !p.Passed() {
				t.Errorf("%+v", call)
			}
		})
	}
}

// Informational responses pass, as often as they come; a header that is written
// twice does not.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		err := enginetest.Streams(enginetest.Delta("a")+enginetest.Stop)(w, r)
		w.WriteHeader(http.StatusTeapot)
		return err
	})
	p.want(t, "a", "done stop")
	if !slices.Equal(p.out.Informed(), []int{103, 102}) {
		t.Errorf("informed of %v", p.out.Informed())
	}
}

// A handler that returns without writing anything, or reads from its source
// itself, is served as by any http.ResponseWriter.
func TestWritingWithoutAHeader(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.Copy(w, strings.NewReader("plain"))
		return err
	}, path("/files/x"))
	equal(t, "answer", p.out.Body(), "plain")
	equal(t, "status", p.out.passed.Status, http.StatusOK)
	p, call := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Set", "1")
		return nil
	})
	if p.out.passed != nil || call.Header.Get("X-Set") != "1" {
		t.Errorf("%+v", call)
	}
}

// A stream that is not recognized passes byte for byte, from its beginning, with
// one warning; its end is that of the backend.
func TestUnknownStreamsPass(t *testing.T) {
	t.Parallel()
	body := ": hi\n\n" + strings.Repeat("data: {\"jsonrpc\":\"2.0\"}\n\n", 3)
	for _, aborts := range []bool{false, true} {
		p, call := produce(t, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Length", "7")
			enginetest.EventStream(w)
			for i := range len(body) {
				_ = enginetest.Say(w, body[i:i+1])
			}
			w.Header().Set("X-Trailer", "t")
			if aborts {
				panic(http.ErrAbortHandler)
			}
			return nil
		}, path("/mcp"))
		p.want(t, "", "")
		equal(t, "body", p.out.Body(), body)
		equal(t, "trailer", p.out.Header().Get("X-Trailer"), "t")
		equal(t, "warnings", p.logs.FilterMessageSnippet("unrecognized stream").Len(), 1)
		equal(t, "heartbeats between frames", p.out.passed.Comments, false)
		equal(t, "written under the write timeout", p.out.passed.Stream, true)
		equal(t, "aborted", call.Aborted, aborts)
	}
}

// A passthrough leaves bytes alone, makes everything on the way pass them on at
// once, and aborts what the client must not take for whole.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	whole := ": hello\n\n" + enginetest.Delta("a") + enginetest.Stop
	large := enginetest.Delta("a" + strings.Repeat("x", 2<<20))
	for name, tc := range map[string]struct {
		body, path string
		aborted    bool
		outcome    event.Kind // 0: nothing is known of its end
	}{
		"whole":                      {body: whole, outcome: event.Done},
		"cut":                        {body: enginetest.Delta("a"), aborted: true, outcome: event.Failed},
		"an error event":             {body: `data: {"error":{"message":"m","type":"api_error"}}` + "\n\n", outcome: event.Failed},
		"an event that is too large": {body: large + enginetest.Delta("b")},
		"an event that is broken":    {body: "data: {\"choices\":[\n\n" + enginetest.Stop},
		"an unknown format":          {body: strings.Repeat("data: {\"x\":1}\n\n", 20)},
		"Gemini without a finish":    {body: `data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}` + "\n\n", path: "/g:streamGenerateContent", outcome: event.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, call := produce(t, func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Content-Length", "999")
				w.Header().Set("X-Upstream", "1")
				return enginetest.Streams(tc.body)(w, r)
			}, passthrough, func(c *ingest.Config, _ *production) {
				if tc.path != "" {
					c.Path = tc.path
				}
			})
			p.want(t, "", "")
			equal(t, "body", p.out.Body() == tc.body, true)
			equal(t, "aborted", call.Aborted, tc.aborted)
			h := p.out.passed.Header
			equal(t, "header", strings.Join([]string{
				h.Get("Content-Length"), h.Get("X-Upstream"), h.Get("Cache-Control"), h.Get("X-Accel-Buffering"), h.Get("Incremental"),
			}, "|"), "|1|no-cache, no-transform|no|?1")
			equal(t, "heartbeats between frames", p.out.passed.Comments, true)
			var kind event.Kind
			if p.Terminal() != nil {
				kind = p.Terminal().Kind
			}
			equal(t, "outcome", kind, tc.outcome)
			equal(t, "passed whole", p.PassedWhole(), tc.outcome != 0)
		})
	}
}

// The error of the client's connection is kept, also where only a flush meets
// it.
func TestPassthroughToABrokenConnection(t *testing.T) {
	t.Parallel()
	p, _ := produce(t, func(w http.ResponseWriter, _ *http.Request) error {
		enginetest.EventStream(w)
		_, _ = io.WriteString(w, enginetest.Delta("a"))
		_ = w.(interface{ FlushError() error }).FlushError()
		return nil
	}, passthrough, func(_ *ingest.Config, p *production) { p.out.BreakAtFlush() })
	if p.Err() == nil || p.PassedWhole() {
		t.Errorf("error %v", p.Err())
	}
}

// codings are what a backend may do to a body though it was asked not to.
func codings(t *testing.T, body string) map[string][]byte {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"gzip": zipped.Bytes(), "zstd": zw.EncodeAll([]byte(body), nil)}
}

// compressed is a backend that answers with a stream in a coding, cut into
// pieces.
func compressed(coding string, body []byte, piece int) enginetest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Encoding", coding)
		w.Header().Set("Content-Length", "999")
		var pieces []string
		for part := range slices.Chunk(body, piece) {
			pieces = append(pieces, string(part))
		}
		return enginetest.Streams(pieces...)(w, r)
	}
}

// A compressed stream is decoded, whatever it is cut into, and what is broken of
// it is not taken for whole.
func TestCompressedStreams(t *testing.T) {
	t.Parallel()
	body := enginetest.Delta("a") + enginetest.Delta("b") + enginetest.Stop
	for coding, coded := range codings(t, body) {
		for piece := 1; piece <= len(coded); piece += 7 {
			p, call := produce(t, compressed(coding, coded, piece))
			p.want(t, "a|b", "done stop")
			equal(t, "header", p.out.header.Get("Content-Encoding")+p.out.header.Get("Content-Length"), "")
			equal(t, "aborted", call.Aborted, false)
		}
		p, _ := produce(t, compressed(coding, coded[:len(coded)/2], 10))
		if end := p.log.end(); end != "upstream_truncated" {
			t.Errorf("%s, cut: %s", coding, end)
		}
		p, _ = produce(t, compressed(coding, []byte(body), 10))
		p.want(t, "", "invalid_upstream")
	}
}

// A compressed stream that is not recognized passes decoded: to a good end where
// it is whole, and else to an aborted connection.
func TestCompressedStreamsThatPass(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("data: {\"jsonrpc\":\"2.0\"}\n\n", 2000)
	for coding, coded := range codings(t, body) {
		p, call := produce(t, compressed(coding, coded, 100), path("/mcp"))
		equal(t, coding+", body", p.out.Body() == body, true)
		equal(t, coding+", aborted", call.Aborted, false)
		equal(t, coding+", header", p.out.passed.Header.Get("Content-Encoding")+p.out.passed.Header.Get("Content-Length"), "")
		for _, cut := range []int{1, len(coded) / 2, len(coded) - 1} {
			_, call = produce(t, compressed(coding, coded[:cut], 100), path("/mcp"))
			equal(t, coding+", cut, aborted", call.Aborted, true)
		}
		// a passthrough is not decoded
		p, call = produce(t, compressed(coding, coded, 100), passthrough)
		equal(t, coding+", passthrough, body", p.out.Body() == string(coded), true)
		equal(t, coding+", passthrough, header", p.out.passed.Header.Get("Content-Encoding"), coding)
		equal(t, coding+", passthrough, aborted", call.Aborted, false)
	}
}
