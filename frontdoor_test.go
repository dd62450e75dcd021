package llmstream_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

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
	id := resp.Header.Get("X-Response-Id")
	equal(t, "body", string(body), fmt.Sprintf(
		"id: %[1]s:1\ndata: {\"text\":\"Hel\"}\n\nid: %[1]s:2\ndata: {\"text\":\"lo \\\"you\\\"\\n\"}\n\n"+
			"id: %[1]s:3\nevent: done\ndata: {\"finish_reason\":\"stop\"}\n\n", id))
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

// What is no token stream passes as if we were not there.
func TestOtherResponsesPassUntouched(t *testing.T) {
	body := strings.Repeat("0123456789", 100)
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		in, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Method", r.Method)
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(in)
		case "/error":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"error":{"message":"slow down"}}`))
		case "/range":
			http.ServeContent(w, r, "f.txt", time.Time{}, strings.NewReader(body))
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			rig.Say(w, "body")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "43")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		}
	})
	send := func(method, path, body string, h http.Header) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	read := func(resp *http.Response) string {
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST"} {
		resp := send(method, "/empty", "", nil)
		equal(t, method, fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Method")), "204 "+method)
	}
	resp := send("POST", "/json", `{"a":1}`, nil)
	equal(t, "JSON", fmt.Sprint(resp.StatusCode, resp.ContentLength, read(resp)), `201 7{"a":1}`)
	resp = send("POST", "/error", "", nil)
	equal(t, "error", fmt.Sprint(resp.StatusCode, resp.Header.Get("Retry-After"), read(resp)), `42917{"error":{"message":"slow down"}}`)
	resp = send("GET", "/range", "", http.Header{"Range": {"bytes=10-14"}, "Accept": {"text/event-stream"}})
	equal(t, "range", fmt.Sprint(resp.StatusCode, resp.Header.Get("Content-Range"), read(resp)), "206bytes 10-14/100001234")
	resp = send("POST", "/trailer", "", nil)
	equal(t, "trailers", fmt.Sprint(read(resp), resp.Trailer), "bodymap[X-Late:[43] X-Sum:[42]]")
}

func TestUpgradesPass(t *testing.T) {
	c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("you said " + line)
		_ = rw.Flush()
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n", c.Addr)
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	equal(t, "status", resp.StatusCode, http.StatusSwitchingProtocols)
	_, _ = io.WriteString(conn, "hi\n")
	line, err := br.ReadString('\n')
	equal(t, "echo", fmt.Sprint(line, err), "you said hi\n<nil>")
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

// compress returns a writer of a content coding whose Flush lets everything so
// far be read.
func compress(coding string, w io.Writer) interface {
	io.WriteCloser
	Flush() error
} {
	if coding == "gzip" {
		return gzip.NewWriter(w)
	}
	zw, err := zstd.NewWriter(w)
	if err != nil {
		panic(err)
	}
	return zw
}

// A stream that is compressed although we asked for it as it is: decoded as it
// comes, each event at its time (ai-gateway#1894, #1927, opencodex#115).
func TestCompressedStreams(t *testing.T) {
	for _, coding := range []string{"gzip", "zstd"} {
		t.Run(coding, func(t *testing.T) {
			next := make(chan string)
			c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				rig.EventStream(w)
				w.Header().Set("Content-Encoding", coding)
				zw := compress(coding, w)
				for piece := range next {
					_, _ = io.WriteString(zw, piece)
					_ = zw.Flush()
					_ = http.NewResponseController(w).Flush()
				}
				_ = zw.Close()
			})
			go func() { next <- rig.Chunk("t0") }()
			resp := post(`{}`).do(t, c)
			equal(t, "Content-Encoding", resp.Header.Get("Content-Encoding"), "")
			fr := rig.NewFrameReader(resp.Body)
			for i := range 5 {
				f, err := fr.Next()
				equal(t, "frame", fmt.Sprint(f.Data, err), fmt.Sprintf(`{"text":"t%d"}<nil>`, i))
				if i < 4 {
					next <- rig.Chunk(fmt.Sprintf("t%d", i+1))
				}
			}
			next <- rig.Stop
			close(next)
			f, err := fr.Next()
			equal(t, "end", fmt.Sprint(f.Event, err), "done<nil>")
		})
	}
}

// Cut or broken, compressed is no different.
func TestBrokenCompression(t *testing.T) {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write([]byte(rig.Chunk("x")))
	_ = zw.Flush()
	for name, tc := range map[string]struct{ body, code string }{
		"cut":     {packed.String(), "upstream_truncated"},
		"garbage": {packed.String() + "garbage, garbage", "invalid_upstream"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				rig.EventStream(w)
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, tc.body)
			})
			a := rig.ReadAnswer(t, post(`{}`).do(t, c).Body)
			if a.Text != "x" || a.Error == nil || a.Error.Code != tc.code {
				t.Errorf("%q %+v", a.Text, a.Error)
			}
		})
	}
}

// What is not decoded passes as it is: other codings, and a passthrough.
func TestOtherCodingsPassUntouched(t *testing.T) {
	for coding, options := range map[string]string{"br": "", "gzip": "emit passthrough"} {
		c, _ := serve(t, options, func(w http.ResponseWriter, _ *http.Request) {
			rig.EventStream(w)
			w.Header().Set("Content-Encoding", coding)
			_, _ = io.WriteString(w, "compressed")
		})
		resp := ask(t, c, chatPath, http.Header{"Accept-Encoding": {coding}})
		equal(t, "Content-Encoding", resp.Header.Get("Content-Encoding"), coding)
		got, err := io.ReadAll(resp.Body)
		equal(t, "body", fmt.Sprint(string(got), err), "compressed<nil>")
	}
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
	for proto, transport := range transports(t) {
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
			case <-time.After(5 * time.Second):
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
			if a.Error == nil || a.Error.Code != "upstream_truncated" || a.Error.Type != "api_error" || a.Error.ResponseID != a.ResponseID {
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
	case <-time.After(5 * time.Second):
		t.Error("the upstream is still open")
	}
}

// An EventSource that comes back by itself does not start a second generation.
func TestComingBackWithoutResume(t *testing.T) {
	c, backend := serve(t, "", whole(rig.Chunk("x")+rig.Stop))
	id := rig.ReadAnswer(t, ask(t, c, chatPath, nil).Body).ResponseID
	equal(t, "status", ask(t, c, chatPath, http.Header{"Last-Event-Id": {id + ":1"}}).StatusCode, http.StatusGone)
	equal(t, "status of another's id", ask(t, c, chatPath, http.Header{"Last-Event-Id": {"42"}}).StatusCode, http.StatusOK)
	equal(t, "calls", backend.Calls.Load(), 2)
}

func TestPassthrough(t *testing.T) {
	body := ": hello\n\n" + rig.Chunk("x") + rig.Stop
	c, _ := serve(t, "emit passthrough", whole(body))
	resp := ask(t, c, chatPath, nil)
	got, err := io.ReadAll(resp.Body)
	equal(t, "body", fmt.Sprint(string(got), err), body+"<nil>")
	equal(t, "X-Accel-Buffering", resp.Header.Get("X-Accel-Buffering"), "no")
	equal(t, "X-Response-Id", resp.Header.Get("X-Response-Id"), "")

	c, _ = serve(t, "emit passthrough", whole(rig.Chunk("x")))
	got, err = io.ReadAll(ask(t, c, chatPath, nil).Body)
	if string(got) != rig.Chunk("x") || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut stream ends with %v after %q", err, got)
	}
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

// A backend that answers while the prompt is still under way is heard to the
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
	case <-time.After(5 * time.Second):
		t.Error("the client's leaving was not noticed")
	}
}

// An unknown stream comes through byte for byte, with one warning.
func TestUnknownStream(t *testing.T) {
	body := ": hi\n\ndata: {\"jsonrpc\":\"2.0\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1}\n\n"
	c, _ := serve(t, "", whole(body))
	got, err := io.ReadAll(ask(t, c, "/mcp", nil).Body)
	equal(t, "body", fmt.Sprint(string(got), err), body+"<nil>")
	equal(t, "warnings", strings.Count(c.Logs(), "unrecognized stream"), 1)
}
