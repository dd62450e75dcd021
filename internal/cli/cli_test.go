package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-llmstream/caddy-llmstream"
	"github.com/caddy-llmstream/caddy-llmstream/internal/cli"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const chatPath = "/v1/chat/completions"

const resumable = "ADDR {\n\tllm_stream {\n\t\tresume /llm {\n\t\t\towner anyone\n\t\t\tchannel {header.X-Chat}\n\t\t\tgrace 1m\n\t\t}\n\t\tdrain {\n\t\t\tspread 10ms\n\t\t\tretry 10ms\n\t\t}\n\t}\n\treverse_proxy %s\n}"

// buffer is an output that another goroutine may look at.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// await waits until the buffer has a text.
func (b *buffer) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(b.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never %q in %q", text, b.String())
		}
	}
}

// output is a Terminal whose outputs can be read.
func output(live bool) (term *cli.Terminal, out, err *buffer) {
	out, err = new(buffer), new(buffer)
	return &cli.Terminal{Out: out, Err: err, Live: live}, out, err
}

// gated is a backend that says a word for each value of words, then stops.
func gated(words <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for word := range words {
			rig.Say(w, rig.Chunk(word))
		}
		rig.Say(w, rig.Stop)
	}
}

// ask begins a response and returns its id.
func ask(t *testing.T, addr string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+chatPath, strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Chat", "chat1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Header.Get("X-Response-Id")
}

// A response is followed over a reload, and only its text is the output.
func TestTailOverAReload(t *testing.T) {
	words := make(chan string)
	backend := rig.NewBackend(t, gated(words))
	config := fmt.Sprintf(resumable, backend.Addr)
	c := rig.Start(t, config)
	go func() { words <- "one " }()
	id := ask(t, c.Addr)
	term, out, notes := output(false)
	ended := make(chan error, 1)
	tail := cli.Tail{URL: "http://" + c.Addr + "/llm/streams/" + id}
	go func() { ended <- tail.Run(t.Context(), term) }()
	out.await(t, "one ")
	c.Load(strings.Replace(config, "grace 1m", "grace 2m", 1))
	notes.await(t, "reconnecting\n")
	words <- "two "
	words <- "three"
	close(words)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := out.String(); got != "one two three\n" {
		t.Errorf("output %q", got)
	}
	if got := notes.String(); !regexp.MustCompile(`^reconnecting\ndone stop\n[34] events · first token .* events/s · 1 reconnect\n$`).MatchString(got) {
		t.Errorf("notes %q", got)
	}
}

// Of a channel every response is followed, until the user has enough.
func TestTailOfAChannel(t *testing.T) {
	words := make(chan string, 1)
	backend := rig.NewBackend(t, gated(words))
	c := rig.Start(t, fmt.Sprintf(resumable, backend.Addr))
	term, out, notes := output(false)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	tail := cli.Tail{URL: "http://" + c.Addr + "/llm/channels/chat1"}
	go func() { ended <- tail.Run(ctx, term) }()
	words <- "hello"
	close(words)
	id := ask(t, c.Addr)
	notes.await(t, "ended "+id+" done m\n")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := out.String(); got != "hello\n" {
		t.Errorf("output %q", got)
	}
	if got := notes.String(); !strings.HasPrefix(got, "started "+id+"\n"+id+":\ndone stop\nended ") {
		t.Errorf("notes %q", got)
	}
}

// On a terminal there is a status line, and nothing that a model says controls it.
func TestTailOnATerminal(t *testing.T) {
	words := make(chan string, 2)
	words <- `red \u001b[31m`
	words <- `text`
	close(words)
	backend := rig.NewBackend(t, gated(words))
	c := rig.Start(t, fmt.Sprintf(resumable, backend.Addr))
	id := ask(t, c.Addr)
	term, out, _ := output(true)
	tail := cli.Tail{URL: "http://" + c.Addr + "/llm/streams/" + id}
	if err := tail.Run(t.Context(), term); err != nil {
		t.Error(err)
	}
	got := out.String()
	if strings.Contains(got, "\x1b[31m") || !strings.Contains(got, "red [31m") || !strings.Contains(got, "first token") {
		t.Errorf("output %q", got)
	}
}

// What will not get better is not tried again, and says why.
func TestTailIsRefused(t *testing.T) {
	words := make(chan string)
	close(words)
	backend := rig.NewBackend(t, gated(words))
	c := rig.Start(t, fmt.Sprintf(resumable, backend.Addr))
	for url, want := range map[string]string{
		"http://" + c.Addr + "/llm/streams/1234567890123456789012": "unknown_response",
		"localhost:8080/llm/streams/x":                             "is no URL",
		"http://" + backend.Addr + chatPath:                        "no stream of llm_stream's",
	} {
		term, _, _ := output(false)
		tail := cli.Tail{URL: url}
		if err := tail.Run(t.Context(), term); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", url, err, want)
		}
	}
	tail := cli.Tail{URL: "http://" + c.Addr, Headers: []string{"Authorization"}}
	term, _, _ := output(false)
	if err := tail.Run(t.Context(), term); err == nil || !strings.Contains(err.Error(), "Name: value") {
		t.Error(err)
	}
}

// Every way to read a response counts the same tokens, and what is not whole is
// counted by its reason.
func TestBench(t *testing.T) {
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Busy") != "" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("a"), rig.Chunk("b"))
		if r.Header.Get("X-Cut") != "" {
			panic(http.ErrAbortHandler)
		}
		rig.Say(w, rig.Stop)
	})
	c := rig.Start(t, "ADDR {\n\thandle_path /openai/* {\n\t\tllm_stream {\n\t\t\temit openai\n\t\t}\n\t\treverse_proxy "+backend.Addr+
		"\n\t}\n\tllm_stream\n\treverse_proxy "+backend.Addr+"\n}")
	for name, tc := range map[string]struct {
		url, header string
		want        []string
		fails       bool
	}{
		"the backend": {url: backend.Addr + chatPath, want: []string{"20 whole", "40, "}},
		"openai":      {url: c.Addr + "/openai" + chatPath, want: []string{"20 whole", "40, "}},
		"text":        {url: c.Addr + chatPath, want: []string{"20 whole", "40, "}},
		"cut":         {url: c.Addr + chatPath, header: "X-Cut: 1", want: []string{"0 whole", "20 upstream_truncated", "40, "}, fails: true},
		"busy":        {url: c.Addr + chatPath, header: "X-Busy: 1", want: []string{"0 whole", "20 429 Too Many Requests", "0, "}, fails: true},
		"a cut":       {url: backend.Addr + chatPath, header: "X-Cut: 1", want: []string{"0 whole", "20 unexpected EOF"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			term, out, _ := output(false)
			b := cli.Bench{URL: "http://" + tc.url, Requests: 20, Concurrency: 4, Body: []byte(`{"stream":true}`)}
			if tc.header != "" {
				b.Headers = []string{tc.header}
			}
			if err := b.Run(t.Context(), term); (err != nil) != tc.fails {
				t.Error(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

// Top asks the admin API of the server it is told, and prints one table where its
// output is no terminal.
func TestTopOfAProcess(t *testing.T) {
	words := make(chan string, 1)
	words <- "a"
	backend := rig.NewBackend(t, gated(words))
	t.Cleanup(func() { close(words) }) // before the backend is closed, which waits
	p := rig.StartProcess(t, fmt.Sprintf(resumable, backend.Addr))
	id := ask(t, p.Addr)
	out, err := p.Command("llm-stream", "top").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !regexp.MustCompile(`(?m)^ID +AGE .*\n` + id + ` +\S+ +1 +1 +0 +text +openai-chat +m +chat1$`).Match(out) {
		t.Errorf("%s", out)
	}
}
