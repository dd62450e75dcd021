//go:build ollama

package ollama_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// kept are options with which a response outlives its client.
const kept = everything + "\nresume /llm\ndrain {\nspread 100ms\nretry 20ms\n}"

// long is a question that takes the slow model two seconds to answer, or a
// little more where it has several at a time.
func long() question { return question{model: slow, prompt: "Grüezi", limit: 250} }

// transcript is what clients have had of a response, as one of them would put
// it together.
type transcript struct {
	rig.Answer
	last string // the id of the last event
}

// read reads frames until one is the last of its connection, or n frames.
func (tr *transcript) read(fr *rig.FrameReader, n int) (reconnect bool, err error) {
	for range n {
		f, err := fr.Next()
		if err != nil {
			return false, err
		}
		if f.Event == "reconnect" {
			if tr.last != "" && f.ID != tr.last {
				return false, fmt.Errorf("%+v after %s", f, tr.last)
			}
			return true, nil
		}
		if err := tr.Merge(f); err != nil {
			return false, err
		}
		tr.last = f.ID
		if f.Terminal() {
			return false, nil
		}
	}
	return false, nil
}

// check checks that it is the whole answer to long.
func (tr *transcript) check(t *testing.T, e endpoint, want string) {
	t.Helper()
	if tr.Done == nil {
		t.Fatalf("it ends with %+v after %q", tr.Error, tr.Text)
	}
	equal(t, "finish", tr.Done.FinishReason, e.limited)
	equal(t, "text", tr.Text, want)
}

// answerTo returns what the model says to a question, asked without us.
func answerTo(t *testing.T, q question) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := endpoints[0]
	body, err := ollama.post(ctx, e.path, []byte(e.body(q, false)))
	if err != nil {
		t.Fatal(err)
	}
	text := gjson.GetBytes(body, "message.content").String()
	if text == "" || !strings.HasPrefix(tinymodel.Answer(), text) {
		t.Fatalf("Ollama answers %s", body)
	}
	return text
}

// eachAtOnce runs a test with all endpoints side by side, and checks that there
// was one generation for each.
func eachAtOnce(t *testing.T, test func(t *testing.T, e endpoint)) {
	t.Helper()
	warm(t, slow)
	w := watchOllama()
	t.Run("at once", func(t *testing.T) {
		for _, e := range endpoints {
			t.Run(e.path, func(t *testing.T) {
				t.Parallel()
				test(t, e)
			})
		}
	})
	equal(t, "generations", w.generations(), len(endpoints))
}

// Four clients read one response: the one that asked, one from its start, one from its
// fifth event, and one that comes after the end.
func TestFourClients(t *testing.T) {
	want := answerTo(t, long())
	c := serve(t, kept)
	eachAtOnce(t, func(t *testing.T, e endpoint) {
		resp := ask(t, c.Addr, e, long())
		first := rig.NewFrameReader(resp.Body)
		url := "http://" + c.Addr + "/llm/streams/" + resp.Header.Get("X-Response-Id")
		var asker, fifth, start, late transcript
		if _, err := asker.read(first, 5); err != nil {
			t.Fatal(err)
		}
		// One that has had as much; what it gets is the rest.
		for _, f := range asker.Frames {
			if err := fifth.Merge(f); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := asker.read(first, 10); err != nil {
			t.Fatal(err)
		}
		get := func(header ...string) *rig.FrameReader {
			return rig.NewFrameReader(send(t.Context(), t, http.MethodGet, url, "", header...).Body)
		}
		ended := make(chan error)
		for tr, fr := range map[*transcript]*rig.FrameReader{
			&asker: first, &start: get(), &fifth: get("Last-Event-ID", asker.Frames[4].ID),
		} {
			go func() {
				_, err := tr.read(fr, unlimited)
				ended <- err
			}()
		}
		if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
			t.Fatal(err)
		}
		if _, err := late.read(get(), unlimited); err != nil {
			t.Fatal(err)
		}
		for _, tr := range []*transcript{&asker, &start, &fifth, &late} {
			tr.check(t, e, want)
		}
	})
}

// A client that is cut again and again, and comes back each time, has the whole
// answer.
func TestCuts(t *testing.T) {
	want := answerTo(t, long())
	c := serve(t, kept)
	eachAtOnce(t, func(t *testing.T, e endpoint) {
		var tr transcript
		connections := 0
		for tr.Done == nil && tr.Error == nil {
			var header []string
			if tr.last != "" {
				header = []string{"Last-Event-ID", tr.last}
			}
			resp := ask(t, c.Addr, e, long(), header...)
			if _, err := tr.read(rig.NewFrameReader(resp.Body), 20); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			connections++
		}
		tr.check(t, e, want)
		if connections < 3 {
			t.Errorf("only %d connections", connections)
		}
	})
}

// begun is a response in mid-stream at each endpoint.
type begun struct {
	readers []*rig.FrameReader
	answers []transcript
}

// begin asks all endpoints at once and reads the first frames: none must be at
// its end when the last begins.
func begin(t *testing.T, addr string) *begun {
	t.Helper()
	b := &begun{make([]*rig.FrameReader, len(endpoints)), make([]transcript, len(endpoints))}
	replies := make([]<-chan reply, len(endpoints))
	for i, e := range endpoints {
		replies[i] = postAside(t.Context(), t, "http://"+addr+e.path, e.body(long(), true))
	}
	for i, e := range endpoints {
		r := <-replies[i]
		if r.err != nil || r.resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %+v, %v", e.path, r.resp, r.err)
		}
		t.Cleanup(func() { _ = r.resp.Body.Close() })
		b.readers[i] = rig.NewFrameReader(r.resp.Body)
	}
	for i, e := range endpoints {
		if _, err := b.answers[i].read(b.readers[i], 10); err != nil {
			t.Fatalf("%s: %v", e.path, err)
		}
	}
	return b
}

// finish reads the rest.
func (b *begun) finish(t *testing.T, want string) {
	t.Helper()
	for i, e := range endpoints {
		if _, err := b.answers[i].read(b.readers[i], unlimited); err != nil {
			t.Fatalf("%s: %v", e.path, err)
		}
		b.answers[i].check(t, e, want)
	}
}

// A reload in mid-stream sends clients away; they come back to the new
// configuration and go on where they were, with the same generations.
func TestReload(t *testing.T) {
	want := answerTo(t, long())
	c := serve(t, kept)
	warm(t, slow)
	w := watchOllama()
	b := begin(t, c.Addr)
	c.Load(site(kept + "\nbuffer 65"))
	for i, e := range endpoints {
		reconnect, err := b.answers[i].read(b.readers[i], unlimited)
		if err != nil || !reconnect {
			t.Fatalf("%s: no reconnect: %v after %d events", e.path, err, len(b.answers[i].Frames))
		}
		if f, err := b.readers[i].Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %+v and %v after a reconnect", e.path, f, err)
		}
		b.readers[i] = rig.NewFrameReader(ask(t, c.Addr, e, long(), "Last-Event-ID", b.answers[i].last).Body)
	}
	b.finish(t, want)
	equal(t, "generations", w.generations(), len(endpoints))
}

// Without resume no client can come back, and a reload cuts none.
func TestReloadWithoutResume(t *testing.T) {
	want := answerTo(t, long())
	c := serve(t, everything)
	warm(t, slow)
	b := begin(t, c.Addr)
	c.Load(site(everything + "\nbuffer 65"))
	b.finish(t, want)
}
