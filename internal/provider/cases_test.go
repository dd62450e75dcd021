package provider_test

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// needsHTTP reports whether a case is about more than the bytes of a stream.
func needsHTTP(c *corpus.Case) bool {
	return c.HeaderWaitMS > 0 || c.Follow || c.Kind == "wish-to-stream" ||
		strings.HasSuffix(c.Want.Code, "_timeout") || strings.HasPrefix(c.Name, "json-completion") || c.Name == "request-wants-no-stream"
}

// Every case whose answer lies in the bytes of the backend comes out right, in
// each dialect, however the bytes are cut.
func TestCases(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, c := range corpus.Cases(t) {
		if needsHTTP(c) {
			continue
		}
		tried++
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			body := c.Body()
			cuts := map[string]func(int) int{"whole": whole, "random": randomPieces(rand.New(rand.NewPCG(7, uint64(len(body)))))}
			if len(body) < 300<<10 {
				cuts["byte by byte"] = func(int) int { return 1 }
			}
			for cut, split := range cuts {
				checkCase(t, c, cut, body, split)
			}
		})
	}
	t.Logf("%d cases", tried)
}

func readerOf(c *corpus.Case) *provider.Reader {
	path, _, _ := strings.Cut(c.Path, "?")
	o := provider.Options{Path: path, Choices: c.Choices()}
	if contentType := c.ResponseHeaders["Content-Type"]; contentType != nil {
		o.ContentType = *contentType
	}
	if c.Route["max_event"] == "64KiB" {
		o.MaxEvent = 64 << 10
	}
	return provider.NewReader(o)
}

func checkCase(t *testing.T, c *corpus.Case, cut string, body []byte, split func(int) int) {
	t.Helper()
	r := readerOf(c)
	if c.Want.Raw {
		passed := 0
		for rest := body; len(rest) > 0; {
			n := min(split(len(rest)), len(rest))
			if r.State() == provider.Opaque {
				passed += n
			}
			r.Feed(rest[:n])
			passed += len(r.Held())
			rest = rest[n:]
		}
		r.Close(true)
		passed += len(r.Held())
		if r.State() != provider.Opaque || passed != len(body) {
			t.Errorf("%s: state %d, %d of %d bytes", cut, r.State(), passed, len(body))
		}
		return
	}
	events := readAll(t, r, body, split)
	for _, dialect := range append([]string{emit.DialectText}, dialectsOf(c)...) {
		stream := encodeAll(t, c, dialect, r, events)
		if dialect != emit.DialectPlain {
			if wrong := corpus.CheckBytes([]byte(stream)); wrong != "" {
				t.Errorf("%s, %s: %s", cut, dialect, wrong)
			}
		}
		got, err := corpus.ReadDialect(dialect, stream)
		if err != nil {
			t.Errorf("%s, %s: %v", cut, dialect, err)
		}
		want := c.Wanted(t, dialect)
		if dialect == emit.DialectPlain {
			got.Terminal = want.Terminal
		}
		if diff := corpus.Diff(got, want, dialect); diff != "" {
			t.Errorf("%s, %s: %s", cut, dialect, diff)
		}
	}
	if last := events[len(events)-1]; last.Kind == event.Failed && c.Want.Status > 0 {
		if last.Err.Status != c.Want.Status || len(events) > 1 {
			t.Errorf("%s: status %d after %d events, want %d", cut, last.Err.Status, len(events)-1, c.Want.Status)
		}
		if retry := c.Want.Headers["X-Should-Retry"]; (retry == "false") != last.Err.Permanent() {
			t.Errorf("%s: permanent is %v", cut, last.Err.Permanent())
		}
	}
}

// dialectsOf returns the other dialects that a case names.
func dialectsOf(c *corpus.Case) []string {
	var dialects []string
	for dialect := range c.WantDialects {
		dialects = append(dialects, dialect)
	}
	slices.Sort(dialects)
	return dialects
}

// encodeAll encodes the events for a client of a dialect.
func encodeAll(t *testing.T, c *corpus.Case, dialect string, r *provider.Reader, events []event.Event) string {
	t.Helper()
	enc, err := emit.New(dialect, emit.Options{ResponseID: "5kQ0c1wDWnVYQ2zTnM8jXb", Model: r.Model(), IncludeUsage: c.AsksForUsage()})
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := enc.(emit.UsageSetter); ok {
		u.SetUsage(r.Usage())
	}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	for i := range events {
		enc.Encode(w, i+1, &events[i])
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever a backend is silent for between two steps of a case that must not be
// cut, it had put something out before.
func TestWorkOfTheModelFeedsTheTimers(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, c := range corpus.Cases(t) {
		if !strings.HasSuffix(c.Name, "-slow") {
			continue
		}
		tried++
		r := readerOf(c)
		for i, step := range c.Steps {
			outputs := 0
			for _, ev := range r.Feed([]byte(step.Data)) {
				if ev.Kind.IsOutput() {
					outputs++
				}
			}
			if outputs += r.Silent(); outputs == 0 && step.WaitMS > 0 {
				t.Errorf("%s: step %d tells of no output: %s", c.Name, i, step.Data)
			}
		}
	}
	if tried == 0 {
		t.Error("no such case")
	}
}
