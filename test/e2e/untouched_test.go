package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

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

// An unknown stream comes through byte for byte, with one warning.
func TestUnknownStream(t *testing.T) {
	body := ": hi\n\ndata: {\"jsonrpc\":\"2.0\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1}\n\n"
	c, _ := serve(t, "", whole(body))
	got, err := io.ReadAll(ask(t, c, "/mcp", nil).Body)
	equal(t, "body", fmt.Sprint(string(got), err), body+"<nil>")
	equal(t, "warnings", strings.Count(c.Logs(), "unrecognized stream"), 1)
}
