package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/upstream"
)

// responds makes a RoundTrip that answers with a stream.
func responds(contentType string, body io.Reader) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body),
		}, nil
	}
}

func request(ctx context.Context, t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://backend/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Whatever a backend sends and however it is cut, what is let through is that, byte
// for byte; what is not was none of an answer.
func TestWhatIsLetThroughIsWhole(t *testing.T) {
	types := map[string]string{".sse": "text/event-stream", ".ndjson": "application/x-ndjson"}
	files, err := filepath.Glob("../provider/testdata/streams/*/*")
	if err != nil || len(files) < 100 {
		t.Fatal(len(files), err)
	}
	passed, refused := 0, 0
	for _, file := range files {
		contentType := types[filepath.Ext(file)]
		if contentType == "" {
			continue
		}
		sent, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []io.Reader{bytes.NewReader(sent), iotest.OneByteReader(bytes.NewReader(sent)), iotest.DataErrReader(bytes.NewReader(sent))} {
			call := upstream.Call{RoundTrip: responds(contentType, body), FirstToken: time.Hour, Asks: true}
			resp, err := call.Do(request(t.Context(), t))
			var unanswered *upstream.UnansweredError
			switch {
			case errors.As(err, &unanswered):
				if refused++; !bytes.HasPrefix(sent, unanswered.Body) {
					t.Errorf("%s: refused with %.200q", file, unanswered.Body)
				}
			case err != nil:
				t.Errorf("%s: %v", file, err)
			default:
				passed++
				if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%s: %d bytes of %d: %v", file, len(got), len(sent), err)
				}
				_ = resp.Body.Close()
			}
		}
	}
	if passed < 100 || refused < 10 {
		t.Errorf("%d are let through, %d are not", passed, refused)
	}
}

// stuck is a body that says something and nothing more until it is closed.
type stuck struct {
	io.Reader
	ctx context.Context
}

func (s stuck) Read(p []byte) (int, error) {
	if n, _ := s.Reader.Read(p); n > 0 {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (stuck) Close() error { return nil }

// The limit runs from the request to the first output and no further, and the
// client's leaving is no failure of the backend.
func TestSilence(t *testing.T) {
	const word = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
	for name, tc := range map[string]struct {
		said  string
		asks  bool
		leave time.Duration
		took  time.Duration
		code  string
		gone  bool
	}{
		"nothing":         {asks: true, took: time.Second, code: "first_token_timeout"},
		"pings":           {said: ": ping\n\n", asks: true, took: time.Second, code: "first_token_timeout"},
		"a word":          {said: word, asks: true},
		"the client goes": {asks: true, leave: 500 * time.Millisecond, took: 500 * time.Millisecond, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, leave)
				}
				call := upstream.Call{FirstToken: time.Second, Asks: tc.asks, RoundTrip: func(r *http.Request) (*http.Response, error) {
					return &http.Response{
						StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
						Body: stuck{strings.NewReader(tc.said), r.Context()},
					}, nil
				}}
				begin := time.Now()
				resp, err := call.Do(request(ctx, t))
				if took := time.Since(begin); took != tc.took {
					t.Errorf("it took %v", took)
				}
				var unanswered *upstream.UnansweredError
				switch {
				case tc.code != "":
					if !errors.As(err, &unanswered) || string(unanswered.Code) != tc.code || !unanswered.Timeout() || unanswered.Status != 0 {
						t.Errorf("%v", err)
					}
				case tc.gone:
					if errors.As(err, &unanswered) || !errors.Is(err, context.Canceled) {
						t.Errorf("%v", err)
					}
				case err != nil:
					t.Error(err)
				default:
					time.Sleep(time.Minute)
					got := make([]byte, len(tc.said))
					if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != tc.said {
						t.Errorf("%q %v", got, err)
					}
					_ = resp.Body.Close()
				}
			})
		})
	}
}

// A body of up to a MiB is sent again as it was; a longer one is sent once.
func TestReplay(t *testing.T) {
	for size, again := range map[int]bool{0: true, 10: true, upstream.MaxReplayed: true, upstream.MaxReplayed + 1: false} {
		text := strings.Repeat("x", size)
		req := request(t.Context(), t)
		req.Body, req.ContentLength = io.NopCloser(iotest.HalfReader(strings.NewReader(text))), int64(size)
		var a upstream.Attempts
		for n := 1; n <= 3; n++ {
			got, err := a.Begin(req)
			if n > 1 && !again {
				if err == nil {
					t.Errorf("%d bytes are sent again", size)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(got.Body); err != nil || string(body) != text {
				t.Errorf("attempt %d of %d bytes has %d: %v", n, size, len(body), err)
			}
		}
		if a.Number() != 3 || a.Replayable() != again {
			t.Errorf("%d bytes: %d attempts, again %v", size, a.Number(), a.Replayable())
		}
	}
	// One that may wait for an answer in the middle of its body goes on as it comes.
	reader, writer := io.Pipe()
	open := request(t.Context(), t)
	open.Body, open.ContentLength = reader, -1
	var a upstream.Attempts
	got, err := a.Begin(open)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = writer.Write([]byte("a")) }()
	if _, err := got.Body.Read(make([]byte, 1)); err != nil || a.Replayable() {
		t.Error(err, a.Replayable())
	}
	req := request(t.Context(), t)
	req.Body = io.NopCloser(iotest.ErrReader(io.ErrClosedPipe))
	if _, err := new(upstream.Attempts).Begin(req); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// watched is a body that knows whether it was closed.
type watched struct {
	io.Reader
	closed bool
}

func (w *watched) Close() error { w.closed = true; return nil }

// A long body is whole for every attempt until one has read past what is held, and
// an attempt that has failed takes nothing from the next.
func TestLongBodyThatWasNotRead(t *testing.T) {
	text := strings.Repeat("x", upstream.MaxReplayed) + "the rest"
	sent := &watched{Reader: strings.NewReader(text)}
	req := request(t.Context(), t)
	req.Body, req.ContentLength = sent, int64(len(text))
	var a upstream.Attempts
	begin := func() io.ReadCloser {
		t.Helper()
		got, err := a.Begin(req)
		if err != nil {
			t.Fatal(err)
		}
		return got.Body
	}
	first := begin()
	if _, err := io.ReadFull(first, make([]byte, upstream.MaxReplayed)); err != nil {
		t.Fatal(err)
	}
	if !a.Replayable() {
		t.Error("what is held is not sent again")
	}
	second := begin()
	if n, err := first.Read(make([]byte, 10)); n > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("the first attempt reads on: %d %v", n, err)
	}
	if err := second.Close(); err != nil || sent.closed {
		t.Errorf("what was not read is closed: %v", err)
	}
	third := begin()
	if got, err := io.ReadAll(third); err != nil || string(got) != text {
		t.Errorf("the third attempt has %d bytes of %d: %v", len(got), len(text), err)
	}
	if _, err := a.Begin(req); err == nil || a.Replayable() {
		t.Errorf("sent again after all was read: %v", err)
	}
	if err := third.Close(); err != nil || !sent.closed {
		t.Errorf("what was read is not closed: %v", err)
	}
}

// A body that breaks off because the client has left is no failure of a backend.
func TestClientLeavesWhileItSends(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	req := request(ctx, t)
	req.Body, req.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), 10
	if _, err := new(upstream.Attempts).Begin(req); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
