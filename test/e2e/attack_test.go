package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/caddy-llmstream/caddy-llmstream"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// prompt is a request body.
const prompt = `{"model":"m","stream":true,"messages":[]}`

// bombMiB is what a bomb unfolds to, in MiB: many times what the tests allow to
// be held, and a gigabyte where that takes seconds.
var bombMiB = map[bool]int{false: 1024, true: 128}[rig.Race]

// target is a Caddy that is attacked, and the backend behind it.
type target struct {
	*rig.Caddy
	backend *rig.Backend
	t       *testing.T
}

// attack runs a Caddy whose one site has llm_stream with some options.
func attack(t *testing.T, options string, answer http.HandlerFunc) *target {
	t.Helper()
	return attackSite(t, "ANYHOST {\n\tllm_stream {\n"+options+"\n\t}\n\treverse_proxy BACKEND\n}", answer)
}

// attackSite runs a Caddy with a whole Caddyfile, in which BACKEND stands for the
// backend, and ANYHOST for an address of the site with any host.
func attackSite(t *testing.T, caddyfile string, answer http.HandlerFunc) *target {
	t.Helper()
	backend := rig.NewBackend(t, answer)
	addr := rig.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	c := rig.Start(t, strings.NewReplacer("BACKEND", backend.Addr, "ANYHOST", "http://:"+port).Replace(caddyfile))
	if strings.Contains(caddyfile, "ANYHOST") {
		c.Addr = addr
	}
	attacked = c
	return &target{c, backend, t}
}

// attacked is the Caddy that runs, which keeps its logs.
var attacked *rig.Caddy

// reply is a whole answer.
type reply struct {
	*http.Response
	body string
	cut  error // how the body ended, where it did not end well
}

// code is the code of an error, of a status or of the last frame; empty where
// there is none.
func (r *reply) code() string {
	body := r.body
	if i := strings.LastIndex(body, "event: error\ndata: "); i >= 0 {
		body = body[i+len("event: error\ndata: "):]
	}
	var e struct{ Error rig.Error }
	_ = json.NewDecoder(strings.NewReader(body)).Decode(&e)
	return e.Error.Code
}

// want checks a status and the code of an error.
func (r *reply) want(t *testing.T, what string, status int, code string) {
	t.Helper()
	if r.StatusCode != status || r.code() != code {
		t.Errorf("%s: status %d %q, not %d %q: %.300s", what, r.StatusCode, r.code(), status, code, r.body)
	}
}

// frames parses the body as frames of ours.
func (r *reply) frames(t *testing.T) []rig.Frame {
	t.Helper()
	fr := rig.NewFrameReader(strings.NewReader(r.body))
	var list []rig.Frame
	for {
		f, err := fr.Next()
		if err == io.EOF { //nolint:errorlint // not wrapped, as io.Reader says
			return list
		}
		if err != nil {
			t.Fatalf("%v in %.500q", err, r.body)
		}
		list = append(list, f)
	}
}

// request builds a request; header are names and values.
func (x *target) request(ctx context.Context, method, path, body string, header ...string) *http.Request {
	x.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+x.Addr+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		if pair[0] == "Host" {
			req.Host = pair[1]
		}
		req.Header[pair[0]] = append(req.Header[pair[0]], pair[1])
	}
	return req
}

// open sends a request and returns the answer without its body.
func (x *target) open(method, path, body string, header ...string) *http.Response {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	x.t.Cleanup(cancel)
	resp, err := http.DefaultClient.Do(x.request(ctx, method, path, body, header...))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// do sends a request and reads the whole answer.
func (x *target) do(method, path, body string, header ...string) *reply {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	resp, err := http.DefaultClient.Do(x.request(ctx, method, path, body, header...))
	if err != nil {
		x.t.Fatal(err)
	}
	return readReply(resp)
}

func readReply(resp *http.Response) *reply {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return &reply{resp, string(body), err}
}

// ask sends a prompt and reads the whole answer.
func (x *target) ask(header ...string) *reply {
	x.t.Helper()
	return x.do(http.MethodPost, chatPath, prompt, header...)
}

// get follows a path.
func (x *target) get(path string, header ...string) *reply {
	x.t.Helper()
	return x.do(http.MethodGet, path, "", header...)
}

// occupy begins a response, reads a part of it and goes on holding it to the end of
// the test.
func (x *target) occupy(header ...string) (id string) {
	x.t.Helper()
	resp, err := http.DefaultClient.Do(x.request(x.t.Context(), http.MethodPost, chatPath, prompt, header...))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		x.t.Fatal(err)
	}
	return resp.Header.Get("X-Response-Id")
}

// dial connects, with a socket that takes little, and writes text. ADDR in it is
// the address of the site.
func (x *target) dial(text string) net.Conn {
	x.t.Helper()
	conn, err := new(net.Dialer).DialContext(x.t.Context(), "tcp", x.Addr)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(8 << 10); err != nil {
		x.t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		x.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "ADDR", x.Addr)); err != nil {
		x.t.Fatal(err)
	}
	return conn
}

// answerOn reads one whole answer from a connection.
func answerOn(t *testing.T, r *bufio.Reader) *reply {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return readReply(resp)
}

// answer is answerOn for a connection with one answer.
func answer(t *testing.T, conn net.Conn) *reply {
	t.Helper()
	return answerOn(t, bufio.NewReader(conn))
}

// head is a POST with a declared length, in HTTP/1.1.
func head(length string, fields ...string) string {
	return "POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nContent-Length: " + length + "\r\n" +
		strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// says is a backend that reads the request and answers with pieces of a stream.
func says(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, pieces...)
	}
}

// hangs is a backend that says one word and then nothing until the client leaves.
func hangs(w http.ResponseWriter, r *http.Request) {
	says(rig.Chunk("a"))(w, r)
	<-r.Context().Done()
}

// answersHello is a whole answer.
var answersHello = says(rig.Chunk("Hel"), rig.Chunk("lo"), rig.Stop)

// endless is a backend that repeats a piece until it is cut off, and tells cut.
func endless(begin, piece string, cut chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		says(begin)(w, r)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, piece); err != nil {
				break
			}
		}
		cut <- struct{}{}
	}
}

// await waits for a value.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
}

// holds checks that what an attack leaves behind, or is in the middle of, costs
// no more than limit bytes of heap. The Caddy must run before.
func holds(t *testing.T, limit int64, attack func()) {
	t.Helper()
	before, logged := heap(), len(attacked.Logs())
	attack()
	var grown int64
	for range 40 {
		logs := 2 * int64(len(attacked.Logs())-logged) // they are kept, in a buffer with room
		if grown = heap() - before - logs; grown < limit {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the heap has grown by %d bytes, %d are allowed", grown, limit)
}
