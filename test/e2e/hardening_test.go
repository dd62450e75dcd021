package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// What clients do. One attack a test; the comment names the weakness (CWE) that
// it tries. What backends do is in hardening_upstream_test.go.

// disguises are requests that generate and would like not to be seen to.
var disguises = map[string]string{
	"h2c":                   "POST " + chatPath + " HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
	"WebSocket":             "POST " + chatPath + " HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
	"any protocol":          "POST " + chatPath + " HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n",
	"Upgrade alone":         "POST " + chatPath + " HTTP/1.1\r\nUpgrade: h2c\r\n",
	"Connection alone":      "POST " + chatPath + " HTTP/1.1\r\nConnection: upgrade\r\n",
	"lower case":            "post " + chatPath + " HTTP/1.1\r\n",
	"mixed case":            "PoSt " + chatPath + " HTTP/1.1\r\n",
	"no stream accepted":    "POST " + chatPath + " HTTP/1.1\r\nAccept: image/png\r\n",
	"malformed Accept":      "POST " + chatPath + " HTTP/1.1\r\nAccept: ;;,/\r\n",
	"a form":                "POST " + chatPath + " HTTP/1.1\r\nContent-Type: multipart/form-data\r\n",
	"a malformed type":      "POST " + chatPath + " HTTP/1.1\r\nContent-Type: ;\r\n",
	"HTTP/1.0":              "POST " + chatPath + " HTTP/1.0\r\n",
	"an absolute form":      "POST http://ADDR" + chatPath + " HTTP/1.1\r\n",
	"GET":                   "GET " + chatPath + " HTTP/1.1\r\nAccept: text/event-stream\r\n",
	"GET, upper case":       "GET " + chatPath + " HTTP/1.1\r\nAccept: TEXT/EVENT-STREAM\r\n",
	"GET, among others":     "GET " + chatPath + " HTTP/1.1\r\nAccept: text/html, */*;q=0.1 ,text/event-stream;q=0.9\r\n",
	"GET, second line":      "GET " + chatPath + " HTTP/1.1\r\nAccept: text/html\r\nAccept: text/event-stream\r\n",
	"GET, odd parameter":    "GET " + chatPath + " HTTP/1.1\r\nAccept: text/event-stream; x\r\n",
	"GET, empty parameter":  "GET " + chatPath + " HTTP/1.1\r\nAccept: text/event-stream;;\r\n",
	"GET, doubled":          "GET " + chatPath + " HTTP/1.1\r\nAccept: text/event-stream;a=1;a=2\r\n",
	"get, with an upgrade":  "get " + chatPath + " HTTP/1.1\r\nAccept: text/event-stream\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n",
	"GET, malformed before": "GET " + chatPath + " HTTP/1.1\r\nAccept: /, text/event-stream\r\n",
}

// disguised sends a disguise.
func (x *target) disguised(line string) net.Conn {
	return x.dial(line + "Host: ADDR\r\nContent-Length: 0\r\n\r\n")
}

// Fault 1, CWE-807: what a client says of itself does not lift a limit.
func TestDisguisesEvadeNoLimit(t *testing.T) {
	x := attack(t, "max_streams 1", hangs)
	x.occupy()
	for name, line := range disguises {
		answer(t, x.disguised(line)).want(t, name, 429, "too_many_streams")
	}
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d calls have got through to the backend", n-1)
	}
}

// Fault 1, CWE-807: nor max_clients, which counts the control endpoints too.
func TestDisguisesEvadeNoClientLimit(t *testing.T) {
	x := attackSite(t, "{\n\tllm_stream {\n\t\tmax_clients 1\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tresume /llm\n\t}\n\treverse_proxy BACKEND\n}", hangs)
	id := x.occupy()
	for name, line := range disguises {
		r := answer(t, x.disguised(line))
		if strings.Contains(r.body, `"reason":"busy"`) { // what an EventSource is told
			continue
		}
		r.want(t, name, 503, "too_many_clients")
	}
	x.get("/llm/streams/"+id, "Connection", "Upgrade", "Upgrade", "h2c").want(t, "follow", 503, "too_many_clients")
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d calls have got through to the backend", n-1)
	}
}

// Fault 1, CWE-807: nor does it get a client the backend's own bytes.
func TestDisguisesGetFramesOfOurs(t *testing.T) {
	x := attack(t, "", answersHello)
	for name, line := range disguises {
		r := answer(t, x.disguised(line))
		if !strings.HasSuffix(r.body, "data: {\"finish_reason\":\"stop\"}\n\n") || strings.Contains(r.body, "chatcmpl") {
			t.Errorf("%s: %.200q", name, r.body)
		}
	}
}

// Fault 1, CWE-807: nor lifts it an owner, a timeout, or the size of a body.
func TestDisguisesAreOwnedAndTimed(t *testing.T) {
	x := attack(t, `timeouts {
		between_tokens 100ms
	}
	resume /llm {
		owner {header.X-User}
		max_body 10
	}`, hangs)
	for name, line := range disguises {
		r := answer(t, x.dial(line+"X-User: alice\r\nHost: ADDR\r\nContent-Length: 0\r\n\r\n"))
		if r.code() != "between_tokens_timeout" {
			t.Errorf("%s: %.200q", name, r.body)
		}
		id := r.Header.Get("X-Response-Id")
		x.get("/llm/streams/"+id, "X-User", "bob").want(t, name, 404, "unknown_response")
		x.get("/llm/streams/"+id, "X-User", "alice").want(t, name, 200, "between_tokens_timeout")
		answer(t, x.dial(line+"X-User: alice\r\nHost: ADDR\r\nContent-Length: 11\r\n\r\nhello world")).
			want(t, name, 413, "request_too_large")
	}
}

// Fault 1, CWE-400: a stream with an upgrade that was not accepted holds the exit
// no longer than any other.
func TestUpgradeHoldsNoExit(t *testing.T) {
	backend := rig.NewBackend(t, hangs)
	p := rig.StartProcess(t, "ADDR {\n\tllm_stream {\n\t\tdrain {\n\t\t\tdeadline 1s\n\t\t}\n\t}\n\treverse_proxy "+backend.Addr+"\n}")
	x := &target{&rig.Caddy{Addr: p.Addr}, backend, t}
	for _, name := range []string{"h2c", "WebSocket", "GET"} {
		conn := x.disguised(disguises[name])
		if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
	}
	p.Signal(syscall.SIGTERM)
	if _, _, err := p.Exited(15 * time.Second); err != nil {
		t.Error(err)
	}
}

// Fault 2, CWE-789: memory follows the bytes that arrive, not the length that was
// declared.
func TestDeclaredLengthIsNotAllocated(t *testing.T) {
	for name, options := range map[string]string{
		"resume":      "resume /llm {\nmax_body 512MiB\n}",
		"a limit":     "max_streams 100",
		"passthrough": "emit passthrough\nmax_streams 100",
	} {
		t.Run(name, func(t *testing.T) {
			x := attack(t, options, answersHello)
			x.ask()
			holds(t, 16<<20, func() {
				for range 40 {
					x.dial(head("500000000") + "x")
				}
				eventually(t, "they are connected", func() bool { return x.ask().StatusCode == 200 })
				time.Sleep(100 * time.Millisecond) // to let each be read
			})
		})
	}
}

// Fault 2, CWE-770: a length beyond max_body is refused unread, and the client
// is not asked to go on.
func TestDeclaredLengthBeyondMaxBody(t *testing.T) {
	x := attack(t, "resume /llm {\nmax_body 1MiB\n}", answersHello)
	for _, length := range []string{"1048577", "9223372036854775807"} {
		for _, expect := range []string{"X: y", "Expect: 100-continue"} {
			answer(t, x.dial(head(length, expect))).want(t, length+" "+expect, 413, "request_too_large")
		}
	}
	for _, length := range []string{"-1", "9223372036854775808", "0x10", "1,2", "+1"} {
		if r := answer(t, x.dial(head(length)+"x")); r.StatusCode != 400 {
			t.Errorf("length %s: status %d", length, r.StatusCode)
		}
	}
	if n := x.backend.Calls.Load(); n != 0 {
		t.Errorf("%d upstream calls", n)
	}
}

// Fault 2, CWE-770: a body without a length is read no further than max_body.
func TestEndlessChunkedBody(t *testing.T) {
	x := attack(t, "resume /llm {\nmax_body 1MiB\n}", answersHello)
	holds(t, 16<<20, func() {
		conn := x.dial("POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := "8000\r\n" + strings.Repeat("x", 32<<10) + "\r\n"
		var written atomic.Int64
		go func() {
			for {
				if _, err := io.WriteString(conn, chunk); err != nil {
					return
				}
				written.Add(int64(len(chunk)))
			}
		}()
		answer(t, conn).want(t, "an endless body", 413, "request_too_large")
		if n := written.Load(); n > 32<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	})
}

// Fault 2, CWE-401: bodies that break off leave nothing, and keep no place.
func TestBodiesThatBreakOff(t *testing.T) {
	x := attack(t, "max_streams 1\nresume /llm", answersHello)
	x.ask()
	holds(t, 8<<20, func() {
		for range 100 {
			conn := x.dial(head("1000000") + strings.Repeat("x", 100<<10))
			_ = conn.Close()
		}
		x.ask().want(t, "a whole one", 200, "")
	})
	if n := x.backend.Calls.Load(); n != 2 {
		t.Errorf("%d upstream calls, not 2", n)
	}
}

// Faults 2 and 4, CWE-770: what is read of bodies counts in max_memory.
func TestBodiesCountInMaxMemory(t *testing.T) {
	x := attackSite(t, "{\n\tllm_stream {\n\t\tmax_memory 8MiB\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tresume /llm\n\t}\n\treverse_proxy BACKEND\n}", answersHello)
	holds(t, 24<<20, func() {
		var refused atomic.Int64
		var wg sync.WaitGroup
		for range 40 {
			conn := x.dial(head("2000000"))
			wg.Go(func() {
				_, _ = io.WriteString(conn, strings.Repeat("x", 1900000))
				_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
					if readReply(resp).code() == "too_many_clients" {
						refused.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := refused.Load(); n < 30 {
			t.Errorf("%d of 40 bodies of 2 MB were refused with max_memory 8MiB", n)
		}
	})
	eventually(t, "there is room again", func() bool { return x.ask().StatusCode == 200 })
}

// uploads are the options with which a body is read before, or while, it goes to
// the backend.
var uploads = map[string]string{ //nolint:gosec // options, no credentials
	"text":        "max_streams 1",
	"tied":        "max_streams 1\nslow_client drop",
	"resume":      "max_streams 1\nresume /llm",
	"passthrough": "max_streams 1\nemit passthrough",
	"per":         "max_streams off {\nper {header.X-Key} 1\n}",
}

// Fault 3, CWE-400: an upload that is not there yet takes no place.
func TestSlowUploadsTakeNoPlace(t *testing.T) {
	for name, options := range uploads {
		t.Run(name, func(t *testing.T) {
			x := attack(t, options, answersHello)
			for range 5 {
				x.dial(head("1000") + "{")
				x.dial("POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{")
			}
			time.Sleep(50 * time.Millisecond) // to let them be read
			for range 3 {
				x.ask().want(t, "a client with its body", 200, "")
			}
		})
	}
}

// Fault 3, CWE-400: a body that drips ends, with 408, although it never rests.
func TestDrippingBodyEnds(t *testing.T) {
	options := maps.Clone(uploads)
	options["no limit"] = ""
	for name, options := range options {
		t.Run(name, func(t *testing.T) {
			x := attack(t, "timeouts {\nread 300ms\n}\n"+options, answersHello)
			eventually(t, "the client sees why it was ended", func() bool {
				conn := x.dial(head("1000000"))
				go func() {
					for range time.Tick(20 * time.Millisecond) {
						if _, err := io.WriteString(conn, "x"); err != nil {
							return
						}
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("it is not ended")
				}
				if err != nil {
					return false // one that still writes may find the connection reset
				}
				readReply(resp).want(t, "a dripping body", 408, "request_timeout")
				return true
			})
			x.ask().want(t, "another client", 200, "")
		})
	}
}

// Fault 3, CWE-400: silence ends too, also after a part that came fast.
func TestSilentBodyEnds(t *testing.T) {
	for name, sent := range map[string]int{"nothing": 0, "a little": 10 << 10} {
		x := attack(t, "timeouts {\nread 200ms\n}\nmax_streams 1\nresume /llm", answersHello)
		answer(t, x.dial(head("1000000")+strings.Repeat("x", sent))).want(t, name, 408, "request_timeout")
	}
}

// CWE-400: connections that never say anything, or half a header, cost no place
// and no client.
func TestHalfOpenConnections(t *testing.T) {
	x := attackSite(t, "{\n\tllm_stream {\n\t\tmax_clients 1\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tmax_streams 1\n\t}\n\treverse_proxy BACKEND\n}", answersHello)
	for range 100 {
		x.dial("")
		x.dial("POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nX-A: ")
	}
	x.ask().want(t, "another client", 200, "")
}

// CWE-400: a client that reads no more loses its place after timeouts write.
func TestClientThatStopsReading(t *testing.T) {
	for name, options := range map[string]string{
		"block": "", "drop": "slow_client drop", "disconnect": "slow_client disconnect", "passthrough": "emit passthrough", "plain": "emit plain",
	} {
		t.Run(name, func(t *testing.T) {
			cut := make(chan struct{}, 10)
			x := attack(t, "max_streams 1\ntimeouts {\nwrite 200ms\n}\n"+options,
				endless(rig.Chunk("a"), rig.Chunk(strings.Repeat("x", 32<<10)), cut))
			holds(t, 24<<20, func() {
				x.dial(head("0"))
				await(t, "the backend is cut off", cut)
			})
			eventually(t, "the place is free", x.isFree)
		})
	}
}

// isFree reports whether there is a place.
func (x *target) isFree() bool {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	resp, err := http.DefaultClient.Do(x.request(ctx, http.MethodPost, chatPath, prompt))
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// longAnswer is 8 MB of text in a response that is kept.
func longAnswer(w http.ResponseWriter, r *http.Request) {
	says()(w, r)
	for range 80 {
		rig.Say(w, rig.Chunk(strings.Repeat("x", 100<<10)))
	}
	rig.Say(w, rig.Stop)
}

// Fault 5, CWE-400: a client that asks for a snapshot, or the frames, and reads nothing
// holds no copy of it.
func TestReadersThatDoNotRead(t *testing.T) {
	x := attack(t, "resume /llm {\nmax_size 16MiB\n}", longAnswer)
	id := x.ask().Header.Get("X-Response-Id")
	for _, accept := range []string{"application/json", "text/event-stream"} {
		holds(t, 24<<20, func() {
			for range 40 {
				conn := x.dial("GET /llm/streams/" + id + " HTTP/1.1\r\nHost: ADDR\r\nAccept: " + accept + "\r\n\r\n")
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Fault 5, CWE-770: they count as clients, and timeouts write ends them.
func TestSnapshotsCountAsClients(t *testing.T) {
	x := attackSite(t, `{
		llm_stream {
			max_clients 3
		}
	}
	ADDR {
		llm_stream {
			timeouts {
				write 500ms
			}
			resume /llm {
				max_size 16MiB
			}
		}
		reverse_proxy BACKEND
	}`, longAnswer)
	id := x.ask().Header.Get("X-Response-Id")
	snapshot := "GET /llm/streams/" + id + " HTTP/1.1\r\nHost: ADDR\r\nAccept: application/json\r\n\r\n"
	for range 3 {
		if _, err := io.ReadFull(x.dial(snapshot), make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	x.get("/llm/streams/"+id, "Accept", "application/json").want(t, "a fourth", 503, "too_many_clients")
	eventually(t, "they are cut off", func() bool {
		return x.get("/llm/streams/"+id, "Accept", "application/json").StatusCode == 200
	})
}

// Fault 7, CWE-639: a key counts with the route and the request as it was sent:
// never the answer of another backend.
func TestSameKeyOnTwoRoutes(t *testing.T) {
	other := rig.NewBackend(t, says(rig.Chunk("from the other"), rig.Stop))
	x := attackSite(t, `ADDR {
		handle_path /x/* {
			llm_stream {
				resume /llm
			}
			reverse_proxy BACKEND
		}
		handle_path /y/* {
			llm_stream {
				resume /llm
			}
			reverse_proxy `+other.Addr+`
		}
		@b header X-Backend b
		handle @b {
			llm_stream /v1/* {
				resume /llm
			}
			reverse_proxy `+other.Addr+`
		}
		handle {
			rewrite /a/* `+chatPath+`
			llm_stream {
				resume /llm
			}
			reverse_proxy BACKEND
		}
	}`, says(rig.Chunk("from the first"), rig.Stop))
	for path, want := range map[string]string{
		"/x" + chatPath: "from the first", "/y" + chatPath: "from the other",
		chatPath: "from the first", "/a/1": "from the first", "/a/2": "from the first", "/a/2?n=1": "from the first",
	} {
		before := x.backend.Calls.Load() + other.Calls.Load()
		r := x.do(http.MethodPost, path, prompt, "Idempotency-Key", "k")
		if !strings.Contains(r.body, want) {
			t.Errorf("%s: %.200q", path, r.body)
		}
		if n := x.backend.Calls.Load() + other.Calls.Load() - before; n != 1 {
			t.Errorf("%s: %d calls", path, n)
		}
	}
	r := x.do(http.MethodPost, chatPath, prompt, "Idempotency-Key", "k", "X-Backend", "b")
	if !strings.Contains(r.body, "from the other") {
		t.Errorf("by a header: %.200q", r.body)
	}
	x.do(http.MethodPost, chatPath, prompt+" ", "Idempotency-Key", "k").want(t, "another body", 422, "idempotency_mismatch")
}

// Fault 9, CWE-770: clients that attach by key hold no request body.
func TestAttachedClientsHoldNoBody(t *testing.T) {
	x := attack(t, "resume /llm", hangs)
	body := `{"model":"m","stream":true,"pad":"` + strings.Repeat("x", 8<<20) + `"}`
	holds(t, 48<<20, func() { // the client of the test holds the rest of what it has not sent
		var wg sync.WaitGroup
		for range 24 {
			resp := x.open(http.MethodPost, chatPath, body, "Idempotency-Key", "k")
			if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d upstream calls", n)
	}
}

// Fault 11, CWE-178: the name of a host has no case and no final dot.
func TestHostInAnotherForm(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	id := x.ask("Host", "Chat.Example.com", "Idempotency-Key", "k").Header.Get("X-Response-Id")
	for _, host := range []string{"chat.example.com", "CHAT.EXAMPLE.COM", "chat.example.com.", "Chat.Example.com:8080"} {
		x.get("/llm/streams/"+id, "Host", host).want(t, host, 200, "")
		x.ask("Host", host, "Idempotency-Key", "k").want(t, host, 200, "")
	}
	x.get("/llm/streams/"+id, "Host", "other.example.com").want(t, "another host", 404, "unknown_response")
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d upstream calls for one key", n)
	}
}

// Fault 11, CWE-178: nor is a credential another one for its spelling.
func TestCredentialInAnotherForm(t *testing.T) {
	x := attack(t, "max_streams off {\nper {header.Authorization} 1\n}", hangs)
	x.occupy("Authorization", "Bearer sk-K")
	for _, form := range []string{"bearer sk-K", "BEARER  sk-K", "Bearer sk-K ", "bEARER\tsk-K"} {
		x.ask("Authorization", form).want(t, form, 429, "key_limit")
	}
	for _, form := range []string{"Bearer sk-k", "Basic sk-K", "sk-K"} {
		x.occupy("Authorization", form)
	}
}

// Fault 13, CWE-200: what a backend says to the client that asked is not for those
// that follow.
func TestFollowersGetNoFieldsOfOthers(t *testing.T) {
	fields := []string{
		"Set-Cookie", "Set-Cookie2", "X-Auth-Token", "Authentication-Info", "Proxy-Authentication-Info", "WWW-Authenticate",
		"X-Ratelimit-Remaining-Tokens", "Anthropic-Organization-Id", "Openai-Organization", "X-Session", "Authorization",
		"Location", "Refresh", "Clear-Site-Data", "Access-Control-Allow-Origin", "Link", "Alt-Svc", "Strict-Transport-Security",
		"Content-Security-Policy", "Report-To", "Nel", "X-Anything",
	}
	x := attack(t, "resume /llm", func(w http.ResponseWriter, r *http.Request) {
		for _, field := range fields {
			w.Header().Set(field, "secret")
		}
		answersHello(w, r)
	})
	first := x.ask("Idempotency-Key", "k")
	id := first.Header.Get("X-Response-Id")
	if first.Header.Get("Set-Cookie") != "secret" {
		t.Error("the client that asked has not got its cookie")
	}
	for name, r := range map[string]*reply{
		"follow":   x.get("/llm/streams/" + id),
		"snapshot": x.get("/llm/streams/"+id, "Accept", "application/json"),
		"resume":   x.ask("Last-Event-ID", id+":1"),
		"key":      x.ask("Idempotency-Key", "k"),
	} {
		for field, values := range r.Header {
			if slices.Contains(values, "secret") {
				t.Errorf("%s: %s", name, field)
			}
		}
	}
}

// Fault 14, CWE-1284: options that cannot work, or that would hold no bound, do
// not load.
func TestSenselessOptionsAreRefused(t *testing.T) {
	x := attack(t, "", answersHello)
	for _, options := range []string{
		"heartbeat 1ns", "heartbeat 9ms", "resume /*", "resume /llm/*", "resume /{host}", "resume /llm/{http.request.uuid}", "resume /a?b",
		"resume /a#b", "resume /", "resume llm", "max_event 2GiB", "max_event 512GiB", "max_event 0",
		"resume /llm {\nmax_body 512GiB\n}", "resume /llm {\nmax_body 2GiB\n}", "resume /llm {\nmax_size 2GiB\n}",
		"drain {\nretry 2562047h\n}", "drain {\nretry 25h\n}", "drain {\nspread 25h\n}", "drain {\ndeadline 9999999h\n}",
		"buffer 0", "buffer -1", "max_streams 0", "max_streams 1 {\nqueue 99999999999999999999 1s\n}",
		"resume /llm {\nkeep 0s\n}", "resume /llm {\nkeep -1s\n}", "resume /llm {\nscope {header.X}\nscope b\n}",
	} {
		if err := x.TryLoad("ADDR {\n\tllm_stream {\n" + options + "\n\t}\n}"); err == nil {
			t.Errorf("loads: %s", options)
		}
	}
	x.ask().want(t, "after all that", 200, "")
}

// control are all requests for a response with an id, a key k and a channel c.
func control(id string) map[string][]string {
	return map[string][]string{
		"follow":            {http.MethodGet, "/llm/streams/" + id, ""},
		"follow from":       {http.MethodGet, "/llm/streams/" + id + "?last_event_id=" + id + ":1", ""},
		"snapshot":          {http.MethodGet, "/llm/streams/" + id, "", "Accept", "application/json"},
		"resume":            {http.MethodPost, chatPath, prompt, "Last-Event-ID", id + ":1"},
		"resume with a GET": {http.MethodGet, chatPath, "", "Accept", "text/event-stream", "Last-Event-ID", id + ":1"},
		"cancel":            {http.MethodPost, "/llm/cancel/" + id, ""},
		"delete":            {http.MethodDelete, "/llm/streams/" + id, ""},
		"cancel the key":    {http.MethodPost, "/llm/cancel?idempotency_key=k", ""},
	}
}

// ownedSite belongs to the owner that a header names. (A real site takes {http.auth.user.id}.)
const ownedSite = `resume /llm {
	owner   {header.X-User}
	channel {header.X-Chat}
}`

// CWE-639: at every endpoint, what belongs to another owner does not exist.
func TestCrossOwnerAccess(t *testing.T) {
	x := attack(t, ownedSite, hangs)
	id := x.occupy("X-User", "alice", "X-Chat", "c", "Idempotency-Key", "k")
	strangers := map[string][]string{
		"bob": {"X-User", "bob"}, "nobody": {"X-User", ""}, "no header": {}, "in another case": {"X-User", "Alice"},
		"with a space": {"X-User", "alice\u00a0"}, "another host": {"X-User", "alice", "Host", "other.example"},
	}
	for who, as := range strangers {
		for what, q := range control(id) {
			r := x.do(q[0], q[1], q[2], append(slices.Clone(q[3:]), as...)...)
			r.want(t, who+": "+what, 404, "unknown_response")
		}
	}
	for what, q := range control("0000000000000000000000") {
		r := x.do(q[0], q[1], q[2], append(slices.Clone(q[3:]), "X-User", "bob")...)
		r.want(t, "an id that is none: "+what, 404, "unknown_response")
	}
	x.do(http.MethodPost, "/llm/cancel/"+id, "", "X-User", "alice").want(t, "its owner", 200, "")
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d upstream calls", n)
	}
}

// CWE-639: a channel has one owner's responses, whatever client knows its name.
func TestCrossOwnerChannel(t *testing.T) {
	x := attack(t, ownedSite, hangs)
	streams := make(map[string]*rig.FrameReader)
	for _, user := range []string{"alice", "bob"} {
		resp := x.open(http.MethodGet, "/llm/channels/c?follow=1", "", "X-User", user, "Accept", "text/event-stream")
		streams[user] = rig.NewFrameReader(resp.Body)
	}
	alice := x.occupy("X-User", "alice", "X-Chat", "c")
	bob := x.occupy("X-User", "bob", "X-Chat", "c")
	for user, id := range map[string]string{"alice": alice, "bob": bob} {
		for range 2 { // started, and the first word
			f, err := streams[user].Next()
			if err != nil || !strings.Contains(f.Data, `"response_id":"`+id+`"`) {
				t.Errorf("%s: %+v, %v", user, f, err)
			}
		}
	}
	x.get("/llm/channels/c").want(t, "nobody", 404, "unknown_response")
}

// CWE-639: the same idempotency key of another owner, or with another credential,
// is another call.
func TestCrossOwnerKey(t *testing.T) {
	x := attack(t, ownedSite, answersHello)
	ids := make(map[string]string)
	for who, as := range map[string][]string{
		"alice": {"X-User", "alice"}, "bob": {"X-User", "bob"}, "alice's other key": {"X-User", "alice", "Authorization", "Bearer 2"},
		"alice's API key": {"X-User", "alice", "X-Api-Key", "2"}, "two fields": {"X-User", "alice", "X-Api-Key", "2", "X-Api-Key", "3"},
		"joined": {"X-User", "alice", "X-Api-Key", "23"}, "nobody": {},
	} {
		id := x.ask(append(as, "Idempotency-Key", "k")...).Header.Get("X-Response-Id")
		if other := ids[id]; other != "" {
			t.Errorf("%s has got the response of %s", who, other)
		}
		ids[id] = who
	}
}

// CWE-345: where one part of a key ends and the next begins cannot be shifted.
func TestKeyPartsDoNotMelt(t *testing.T) {
	x := attack(t, ownedSite, answersHello)
	ids := make(map[string]bool)
	for _, parts := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"a1:b", "c"}, {"a", "1:bc"}, {"1:a", "bc"}, {"a\tb", "c"}} {
		ids[x.ask("X-User", parts[0], "Idempotency-Key", parts[1]).Header.Get("X-Response-Id")] = true
	}
	if len(ids) != 7 {
		t.Errorf("%d responses for 7 owners and keys", len(ids))
	}
}

// CWE-203: there is no telling an id that is unknown from one that is
// another owner's, from one that is malformed.
func TestNoOracleForIDs(t *testing.T) {
	x := attack(t, ownedSite, hangs)
	id := x.occupy("X-User", "alice")
	var want string
	for _, guess := range []string{id, "0000000000000000000000", id[:21], "x", id + "x", strings.ToLower(id) + "_"} {
		r := x.get("/llm/streams/"+guess, "X-User", "bob")
		r.Header.Del("Date")
		if got := fmt.Sprint(r.StatusCode, r.Header, r.body); want == "" {
			want = got
		} else if got != want {
			t.Errorf("%s is answered with %s, not %s", guess, got, want)
		}
	}
}

// CWE-340: ids are not to be guessed from others: all of their 22 characters
// differ, and no two are near one another.
func TestGuessingIDs(t *testing.T) {
	x := attack(t, "", says(rig.Chunk("a"), rig.Stop))
	const n = 500
	seen := make(map[string]bool)
	var values [22]map[byte]bool
	for range n {
		id := x.ask().Header.Get("X-Response-Id")
		if len(id) != 22 || strings.Trim(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
			t.Fatalf("id %q", id)
		}
		seen[id[:11]], seen[id[11:]] = true, true
		for i := range values {
			if values[i] == nil {
				values[i] = make(map[byte]bool)
			}
			values[i][id[i]] = true
		}
	}
	if len(seen) != 2*n {
		t.Errorf("%d different halves of %d ids", len(seen), n)
	}
	for i, v := range values { // 2^128 ends at 7 in the first of them
		if len(v) < 40 && i > 0 || len(v) < 7 {
			t.Errorf("character %d has %d values in %d ids", i, len(v), n)
		}
	}
}

// CWE-20: paths with anything in the place of an id find nothing and break
// nothing.
func TestOddIDsInPaths(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	id := x.ask().Header.Get("X-Response-Id")
	for _, odd := range []string{
		"%00", id + "%00", "%0d%0a", "%2f" + id, id + "/", id + "/x", "*", "%ff%fe", "%F0%9F%98%80",
		strings.Repeat("a", 8000), strings.Repeat("%61", 4000), id + ":1", id + ";v=1", "{id}", "%7Bhttp.request.host%7D", id + "%20",
	} {
		x.get("/llm/streams/"+odd).want(t, odd[:min(len(odd), 40)], 404, "unknown_response")
		x.do(http.MethodDelete, "/llm/streams/"+odd, "").want(t, odd[:min(len(odd), 40)], 404, "unknown_response")
		x.do(http.MethodPost, "/llm/cancel/"+odd, "").want(t, odd[:min(len(odd), 40)], 404, "unknown_response")
	}
	x.get("/llm/streams/"+id).want(t, "the id itself", 200, "")
}

// CWE-20, CWE-113: a cursor that was not sent is refused before anything is
// answered, and nothing of it comes back.
func TestOddCursors(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	id := x.ask().Header.Get("X-Response-Id")
	for _, odd := range []string{
		id, id + ":", ":1", id + ":-1", id + ":4", id + ":99999999999999999999", id + ":01", id + ":1e1", id + ":0x1", id + ":1:1",
		id + ": 1", id + ":1 ", id + ":\u0661", id + ":1\r\nX-Evil: 1", id + ":1\n\ndata: evil", id + ":1\x00", "\r\n\r\nevil",
		strings.Repeat("1", 8000), "{http.request.host}:1", "000000000000000000000:1",
	} {
		for what, r := range map[string]*reply{
			"GET":  x.get("/llm/streams/" + id + "?last_event_id=" + url.QueryEscape(odd)),
			"POST": x.ask("Last-Event-ID", strings.Map(printable, odd)),
		} {
			if what == "POST" && strings.TrimSpace(strings.Map(printable, odd)) != odd {
				continue // no client can send that
			}
			r.want(t, fmt.Sprintf("%s %.60q", what, odd), 400, "bad_cursor")
			if r.Header.Get("X-Evil") != "" || strings.Contains(r.body, "evil") {
				t.Errorf("%s %q comes back: %v %q", what, odd, r.Header, r.body)
			}
		}
	}
	if n := x.backend.Calls.Load(); n != 1 {
		t.Errorf("%d upstream calls", n)
	}
}

func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

// CWE-113, CWE-117, CWE-79: what a client sends is never written as a line, or as
// anything but a JSON string.
func TestNothingOfAClientIsEchoedRaw(t *testing.T) {
	x := attack(t, "emit {query.emit}\nresume /llm {\nowner anyone\nchannel {query.chat}\n}", answersHello)
	evil := url.QueryEscape("x\r\nX-Evil: 1\r\n\r\n<script>alert(1)</script>\u2028\ndata: evil\n\n")
	r := x.do(http.MethodPost, chatPath+"?emit="+evil, prompt)
	r.want(t, "a dialect", 400, "unknown_dialect")
	if r.Header.Get("X-Evil") != "" || r.Header.Get("Content-Type") != "application/json" || strings.Count(r.body, "\n") != 1 ||
		strings.Contains(r.body, "\u2028") {
		t.Errorf("%v %q", r.Header, r.body)
	}
	listener := x.open(http.MethodGet, "/llm/channels/"+strings.ReplaceAll(evil, "+", "%20"), "")
	fr := rig.NewFrameReader(listener.Body)
	id := x.do(http.MethodPost, chatPath+"?chat="+evil, prompt).Header.Get("X-Response-Id")
	f, err := fr.Next()
	if err != nil || f.Event != "started" || !strings.Contains(f.Data, id) || strings.Contains(f.Data, "evil") {
		t.Errorf("%+v, %v", f, err)
	}
}

// CWE-74: what a prompt says is no frame when the model repeats it.
func TestFramesInAPrompt(t *testing.T) {
	x := attack(t, "", func(w http.ResponseWriter, r *http.Request) {
		said, _ := io.ReadAll(r.Body)
		rig.EventStream(w)
		rig.Say(w, rig.Chunk(string(said[1:len(said)-1])), rig.Stop)
	})
	for _, said := range []string{
		`\n\nevent: done\ndata: {\"finish_reason\":\"stop\"}\n\n`, `\r\rdata: x\r\r`, `\u2028data: x\u0085`, `\u0000`, `\"}\n\ndata: [DONE]\n\n`,
	} {
		r := x.do(http.MethodPost, chatPath, `"`+said+`"`)
		if list := r.frames(t); len(list) != 2 || list[0].Event != "" || list[1].Event != "done" {
			t.Errorf("%q becomes %q", said, r.body)
		}
		if strings.ContainsAny(r.body, "\r\u2028\u0085\x00") {
			t.Errorf("%q comes as it is: %q", said, r.body)
		}
	}
}

// CWE-20: names of channels are taken as they are: no path in them leads
// anywhere, and none is another's.
func TestOddChannels(t *testing.T) {
	x := attack(t, "resume /llm {\nowner anyone\nchannel {header.X-Chat}\n}", answersHello)
	names := []string{"a", "A", "a/b", "...", "a%2Fb", "a b", "*", "{http.request.host}", "\u00e9", strings.Repeat("c", 4000)}
	readers := make(map[string]*rig.FrameReader)
	for _, name := range names {
		resp := x.open(http.MethodGet, "/llm/channels/"+url.PathEscape(name), "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%.40q: status %d", name, resp.StatusCode)
		}
		readers[name] = rig.NewFrameReader(resp.Body)
	}
	for _, name := range names {
		id := x.ask("X-Chat", name).Header.Get("X-Response-Id")
		for _, event := range []string{"started", "ended"} {
			f, err := readers[name].Next()
			if err != nil || f.Event != event || !strings.Contains(f.Data, id) {
				t.Errorf("%.40q: %+v, %v", name, f, err)
			}
		}
	}
}

// CWE-20, CWE-770: an idempotency key is what its bytes are, and a long one is a
// hash in memory.
func TestOddKeys(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	keys := []string{"a", "A", "a,b", "{http.request.uuid}", "\u00e9", "\"a\"", strings.Repeat("k", 8000)}
	ids := make(map[string]bool)
	for _, key := range keys {
		for range 2 {
			ids[x.ask("Idempotency-Key", key).Header.Get("X-Response-Id")] = true
		}
	}
	if n := x.backend.Calls.Load(); len(ids) != len(keys) || n != int64(len(keys)) {
		t.Errorf("%d responses and %d calls for %d keys", len(ids), n, len(keys))
	}
}

// CWE-524: no cache may keep an answer of ours for others.
func TestNothingIsCached(t *testing.T) {
	x := attack(t, ownedSite, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000")
		w.Header().Set("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")
		w.Header().Set("Etag", `"1"`)
		answersHello(w, r)
	})
	id := x.ask("X-User", "alice", "Idempotency-Key", "k").Header.Get("X-Response-Id")
	answers := map[string]*reply{
		"new":             x.ask("X-User", "alice"),
		"nothing left":    x.get("/llm/streams/"+id+"?last_event_id="+id+":3", "X-User", "alice"),
		"bad cursor":      x.get("/llm/streams/"+id+"?last_event_id=x", "X-User", "alice"),
		"not its owner's": x.get("/llm/streams/"+id, "X-User", "bob"),
		"no key":          x.do(http.MethodPost, "/llm/cancel?idempotency_key=", "", "X-User", "alice"),
	}
	for what, q := range control(id) {
		answers[what] = x.do(q[0], q[1], q[2], append(slices.Clone(q[3:]), "X-User", "alice")...)
	}
	for what, r := range answers {
		control := r.Header.Get("Cache-Control")
		if control != "no-store" && control != "no-cache, no-transform" {
			t.Errorf("%s (%d): Cache-Control is %q", what, r.StatusCode, control)
		}
		if r.Header.Get("Expires") != "" && what != "new" {
			t.Errorf("%s: Expires", what)
		}
	}
}

// CWE-942: we let no other origin in. What it may do the site says, with Caddy's
// header directive.
func TestNoOriginIsLetIn(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	id := x.ask("Idempotency-Key", "k").Header.Get("X-Response-Id")
	for what, q := range control(id) {
		r := x.do(q[0], q[1], q[2], append(slices.Clone(q[3:]), "Origin", "https://evil.example")...)
		for field := range r.Header {
			if strings.HasPrefix(field, "Access-Control-") {
				t.Errorf("%s: %s", what, field)
			}
		}
	}
}

// CWE-352, CWE-650: nothing is cancelled by what a page of another origin can
// send without asking: a link, an image, a preflight.
func TestGetCancelsNothing(t *testing.T) {
	x := attack(t, "resume /llm", hangs)
	id := x.occupy("Idempotency-Key", "k")
	for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodPut, "delete"} {
		for _, path := range []string{"/llm/cancel/" + id, "/llm/cancel?idempotency_key=k", "/llm/streams/" + id} {
			if method == http.MethodGet && strings.HasPrefix(path, "/llm/streams") {
				continue // follows it
			}
			_ = x.dial(method + " " + path + " HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 0\r\n\r\n")
		}
	}
	time.Sleep(100 * time.Millisecond) // to let something come of it
	if r := x.get("/llm/streams/"+id, "Accept", "application/json"); !strings.Contains(r.body, `"in_progress"`) {
		t.Errorf("the response is %s", r.body)
	}
}

// CWE-444: what stands in a body, also in one that is not needed or is refused,
// is never taken for a request.
func TestRequestsInBodies(t *testing.T) {
	var paths sync.Map
	x := attackSite(t, "ADDR {\n\tllm_stream {\n\t\tmax_streams 2\n\t\tresume /llm {\nmax_body 100KiB\n}\n\t}\n\treverse_proxy BACKEND\n}",
		func(w http.ResponseWriter, r *http.Request) {
			paths.Store(r.URL.Path, true)
			answersHello(w, r)
		})
	id := x.ask("Idempotency-Key", "k").Header.Get("X-Response-Id")
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: ADDR\r\n\r\n"
	length := fmt.Sprint(len(strings.ReplaceAll(smuggled, "ADDR", x.Addr)))
	big := "POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat(smuggled, 5000)
	for what, text := range map[string]string{
		"new":       head(length) + smuggled,
		"resumed":   head(length, "Last-Event-ID: "+id+":1") + smuggled,
		"bad":       head(length, "Last-Event-ID: x") + smuggled,
		"mismatch":  head(length, "Idempotency-Key: k") + smuggled,
		"follow":    "GET /llm/streams/" + id + " HTTP/1.1\r\nHost: ADDR\r\nContent-Length: " + length + "\r\n\r\n" + smuggled,
		"snapshot":  "GET /llm/streams/" + id + " HTTP/1.1\r\nHost: ADDR\r\nAccept: application/json\r\nContent-Length: " + length + "\r\n\r\n" + smuggled,
		"unknown":   "GET /llm/streams/x HTTP/1.1\r\nHost: ADDR\r\nContent-Length: " + length + "\r\n\r\n" + smuggled,
		"cancel":    "POST /llm/cancel/" + id + " HTTP/1.1\r\nHost: ADDR\r\nContent-Length: " + length + "\r\n\r\n" + smuggled,
		"too large": big,
		"chunked":   "POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", len(strings.ReplaceAll(smuggled, "ADDR", x.Addr))) + smuggled + "\r\n0\r\n\r\n",
		"upgrade":   head(length, "Connection: Upgrade", "Upgrade: h2c") + smuggled,
	} {
		conn := x.dial(text)
		r := bufio.NewReader(conn)
		answerOn(t, r)
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if line, err := r.ReadString('\n'); err == nil {
			t.Errorf("%s: a second answer: %q", what, line)
		}
	}
	if _, reached := paths.Load("/smuggled"); reached {
		t.Error("a smuggled request has reached the backend")
	}
}

// CWE-444: a request whose length is in doubt is refused, or ends its connection.
func TestAmbiguousLengths(t *testing.T) {
	var paths sync.Map
	x := attack(t, "resume /llm", func(w http.ResponseWriter, r *http.Request) {
		paths.Store(r.URL.Path, true)
		answersHello(w, r)
	})
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: ADDR\r\n\r\n"
	for what, fields := range map[string]string{
		"both":            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":     "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"unknown coding":  "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two codings":     "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"a space":         "Content-Length : 5\r\n\r\n",
		"a folded line":   "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"a vertical tab":  "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"a negative size": "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
		"a bare CR":       "X: a\rTransfer-Encoding: chunked\r\n\r\n",
	} {
		conn := x.dial("POST " + chatPath + " HTTP/1.1\r\nHost: ADDR\r\n" + fields + smuggled)
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
		if _, reached := paths.LoadAndDelete("/smuggled"); reached {
			t.Logf("%s: the second request was taken for one", what)
			if what != "a folded line" && what != "both" { // as RFC 9112 has them, sections 5.2 and 6.3
				t.Errorf("%s: smuggled", what)
			}
		}
	}
}

// CWE-409: a compressed request body is looked through in bounded memory, and not
// forever.
func TestCompressedRequestBomb(t *testing.T) {
	var bomb bytes.Buffer
	zw := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range bombMiB {
		_, _ = zw.Write(zeros)
	}
	_ = zw.Close()
	zstdWindow := "\x28\xb5\x2f\xfd\x00\xf8" + strings.Repeat("\x00", 1000) // asks for a window of more than 1 TiB
	for name, options := range map[string]string{"attached": "", "a limit": "max_streams 1", "resume": "resume /llm"} {
		t.Run(name, func(t *testing.T) {
			x := attack(t, options, answersHello)
			holds(t, 32<<20, func() {
				x.do(http.MethodPost, chatPath, bomb.String(), "Content-Encoding", "gzip").want(t, "a bomb in gzip", 200, "")
				x.do(http.MethodPost, chatPath, zstdWindow, "Content-Encoding", "zstd").want(t, "a window", 200, "")
			})
		})
	}
}

// CWE-674: a deep request body is looked through without a stack, and breaks
// nothing.
func TestDeepRequestBody(t *testing.T) {
	x := attack(t, "resume /llm", answersHello)
	for _, open := range []string{"[", `{"a":`, `{"stream":[`} {
		x.do(http.MethodPost, chatPath, strings.Repeat(open, 2_000_000), "X-A", "b").want(t, open, 200, "")
	}
}

// CWE-400: streams on HTTP/2 that are reset at once, thousands of them, leave no
// call and no place taken.
func TestRapidReset(t *testing.T) {
	x := attackSite(t, "TLSADDR {\n\ttls internal\n\tllm_stream {\n\t\tmax_streams 50\n\t}\n\treverse_proxy BACKEND\n}\nADDR {\n\tllm_stream\n\treverse_proxy BACKEND\n}", hangs)
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a certificate of the test's own
	x.WaitTLS(config)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	t.Cleanup(client.CloseIdleConnections)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*time.Millisecond)
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+x.TLSAddr+chatPath, strings.NewReader(prompt))
				if resp, err := client.Do(req); err == nil {
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	eventually(t, "all places are free", func() bool {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+x.TLSAddr+chatPath, strings.NewReader(prompt))
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	})
}
