package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

const chatPath = "/v1/chat/completions"

// serve runs Caddy with llm_stream before a backend.
func serve(t *testing.T, options string, answer http.HandlerFunc) (*rig.Caddy, *rig.Backend) {
	t.Helper()
	backend := rig.NewBackend(t, answer)
	return rig.Start(t, fmt.Sprintf("ADDR {\n\tllm_stream {\n%s\n\t}\n\treverse_proxy %s\n}", options, backend.Addr)), backend
}

// whole is a backend that answers at once.
func whole(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, body)
	}
}

func TestTextDeltasAreAllThatIsLeft(t *testing.T) {
	c, _ := serve(t, "", whole(rig.Chunk("Hel")+rig.Chunk(`lo \"you\"\n`)+rig.Stop))
	resp := ask(t, c, chatPath, nil)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "body", string(body),
		"id: 1\ndata: {\"text\":\"Hel\"}\n\nid: 2\ndata: {\"text\":\"lo \\\"you\\\"\\n\"}\n\n"+
			"id: 3\nevent: done\ndata: {\"finish_reason\":\"stop\"}\n\n")
	equal(t, "response id", fanout.IsID(resp.Header.Get("X-Response-Id")), true)
	for field, want := range map[string]string{
		"Content-Type":      "text/event-stream; charset=utf-8",
		"Cache-Control":     "no-cache, no-transform",
		"X-Accel-Buffering": "no",
		"Incremental":       "?1",
		"Content-Length":    "",
	} {
		equal(t, field, resp.Header.Get(field), want)
	}
}

func TestUpstreamHeaders(t *testing.T) {
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		equal(t, "Accept-Encoding", r.Header.Get("Accept-Encoding"), "identity")
		rig.EventStream(w)
		w.Header().Set("Openai-Processing-Ms", "12")
		w.Header().Set("Content-Length", fmt.Sprint(len(rig.Chunk("x")+rig.Stop)))
		w.Header().Set("Etag", `"x"`)
		rig.Say(w, rig.Chunk("x")+rig.Stop)
	})
	resp := ask(t, c, chatPath, http.Header{"Accept-Encoding": {"gzip"}})
	a := rig.ReadAnswer(t, resp.Body)
	equal(t, "text", a.Text, "x")
	equal(t, "kept", resp.Header.Get("Openai-Processing-Ms"), "12")
	equal(t, "Etag", resp.Header.Get("Etag"), "")
	equal(t, "Content-Length", resp.ContentLength, -1)
}

// Each delta is on its way when it has come, alone, and what came in one read
// leaves together; nothing waits for the next one.
func TestDeltasAreFlushedAsTheyCome(t *testing.T) {
	next := make(chan string)
	c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
		rig.EventStream(w)
		rig.Say(w, ": comment\n\n")
		for piece := range next {
			rig.Say(w, piece)
		}
	})
	type reply struct {
		resp *http.Response
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr+chatPath, nil)
		resp, err := http.DefaultClient.Do(req)
		replies <- reply{resp, err}
	}()
	next <- rig.Chunk("a") // no header comes before the first frame
	got := <-replies
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer func() { _ = got.resp.Body.Close() }()
	fr := rig.NewFrameReader(got.resp.Body)
	for i, want := range []string{"a", "b", "c"} {
		f, err := fr.Next()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "frame", f.Data, fmt.Sprintf(`{"text":%q}`, want))
		if i == 0 {
			next <- rig.Chunk("b")
			continue
		}
		if i == 1 {
			next <- rig.Chunk("c")
		}
	}
	next <- rig.Stop
	close(next)
	if f, err := fr.Next(); err != nil || f.Event != "done" {
		t.Fatalf("%+v %v", f, err)
	}
}

// The directive comes before everything that dispatches or answers, after
// authentication and encode, without an order option.
func TestDirectiveOrder(t *testing.T) {
	backend := rig.NewBackend(t, whole(rig.Chunk("x")+rig.Stop))
	sites := map[string]string{
		"beside reverse_proxy": `reverse_proxy B
			llm_stream`,
		"before handle": `handle /v1/* {
				reverse_proxy B
			}
			llm_stream /v1/*`,
		"inside handle": `handle /v1/* {
				reverse_proxy B
				llm_stream
			}
			handle {
				respond 404
			}`,
		"inside handle_path": `handle_path /api/* {
				llm_stream
				reverse_proxy B
			}
			rewrite /v1/chat/completions /api/v1/chat/completions`,
		"inside route": `route {
				llm_stream
				reverse_proxy B
			}`,
		"around route": `route /v1/* {
				reverse_proxy B
			}
			llm_stream`,
		"before invoke": `invoke backend
			llm_stream`,
	}
	for name, site := range sites {
		t.Run(name, func(t *testing.T) {
			site = strings.ReplaceAll(site, "reverse_proxy B", "reverse_proxy "+backend.Addr)
			config := "&(backend) {\n\treverse_proxy " + backend.Addr + "\n}\nADDR {\n" + site + "\n}"
			c := rig.Start(t, config)
			equal(t, "text", rig.ReadAnswer(t, ask(t, c, chatPath, nil).Body).Text, "x")
		})
	}
}

func TestAuthenticationComesFirst(t *testing.T) {
	backend := rig.NewBackend(t, whole(rig.Chunk("x")+rig.Stop))
	c := rig.Start(t, `ADDR {
		llm_stream
		reverse_proxy `+backend.Addr+`
		basic_auth {
			bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
		}
	}`)
	equal(t, "status", ask(t, c, chatPath, nil).StatusCode, http.StatusUnauthorized)
	equal(t, "calls", backend.Calls.Load(), 0)
}

// The stream goes through encode uncompressed and at its time: caddy#4247,
// caddy#6293.
func TestBehindEncode(t *testing.T) {
	next := make(chan string)
	backend := rig.NewBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		rig.EventStream(w)
		rig.Say(w, "\n")
		for piece := range next {
			rig.Say(w, piece)
		}
	})
	c := rig.Start(t, `ADDR {
		encode gzip zstd {
			match {
				header Content-Type *
			}
		}
		llm_stream
		reverse_proxy `+backend.Addr+`
	}`)
	go func() { next <- rig.Chunk("first") }()
	resp := ask(t, c, chatPath, http.Header{"Accept-Encoding": {"gzip, zstd"}})
	equal(t, "Content-Encoding", resp.Header.Get("Content-Encoding"), "")
	fr := rig.NewFrameReader(resp.Body)
	f, err := fr.Next()
	equal(t, "first frame", fmt.Sprint(f.Data, err), `{"text":"first"}<nil>`)
	next <- rig.Stop
	close(next)
	f, err = fr.Next()
	equal(t, "last frame", fmt.Sprint(f.Event, err), "done<nil>")
}

// One site with TLS answers on HTTP/1.1, HTTP/2 and HTTP/3 alike.
func TestProtocols(t *testing.T) {
	backend := rig.NewBackend(t, whole(rig.Chunk("one ")+rig.Chunk("two")+rig.Stop))
	c := rig.Start(t, `https://TLSADDR {
		tls internal
		llm_stream
		reverse_proxy `+backend.Addr+`
	}`)
	c.WaitTLS(&tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}) //nolint:gosec // Caddy's own authority, not installed here
	for proto, transport := range rig.Transports(t) {
		t.Run(proto, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.TLSAddr+chatPath, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			equal(t, "protocol", resp.Proto, proto)
			a := rig.ReadAnswer(t, resp.Body)
			equal(t, "text", fmt.Sprint(a.Text, a.Cut), "one two<nil>")
		})
	}
}

// An EventSource that comes back by itself does not start a second generation.
func TestComingBackWithoutResume(t *testing.T) {
	c, backend := serve(t, "", whole(rig.Chunk("x")+rig.Stop))
	id := ask(t, c, chatPath, nil).Header.Get("X-Response-Id")
	for _, own := range []string{id + ":1", "42"} {
		equal(t, "status", ask(t, c, chatPath, http.Header{"Last-Event-Id": {own}}).StatusCode, http.StatusGone)
	}
	equal(t, "status of another's id", ask(t, c, chatPath, http.Header{"Last-Event-Id": {"m42"}}).StatusCode, http.StatusOK)
	equal(t, "calls", backend.Calls.Load(), 2)
}

func TestEmitByPlaceholder(t *testing.T) {
	c, backend := serve(t, "emit {http.request.header.X-Emit}", whole(rig.Chunk("x")+rig.Stop))
	for emit, want := range map[string]int{"": 200, "text": 200, "passthrough": 200, "yaml": 400} {
		resp := ask(t, c, chatPath, http.Header{"X-Emit": {emit}})
		equal(t, "status of "+emit, resp.StatusCode, want)
		body, _ := io.ReadAll(resp.Body)
		if want == 400 && !strings.Contains(string(body), `"code":"unknown_dialect"`) {
			t.Errorf("%s", body)
		}
	}
	equal(t, "calls", backend.Calls.Load(), 3)
}

// A backend that answers while the prompt is still under way is read to the
// end, and the client's leaving is still noticed.
func TestAnswerBeforeTheWholePrompt(t *testing.T) {
	proceed, left := make(chan struct{}), make(chan struct{})
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.ReadFull(r.Body, make([]byte, 1000))
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("early "))
		<-proceed
		_, _ = io.Copy(io.Discard, r.Body)
		rig.Say(w, rig.Chunk("late"))
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr+chatPath, strings.NewReader(strings.Repeat("p", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	fr := rig.NewFrameReader(resp.Body)
	f, err := fr.Next()
	equal(t, "first", fmt.Sprint(f.Data, err), `{"text":"early "}<nil>`)
	close(proceed)
	f, err = fr.Next()
	equal(t, "second", fmt.Sprint(f.Data, err), `{"text":"late"}<nil>`)
	cancel()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the client's leaving was not noticed")
	}
}
