package llmstream_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// unhurried is a backend whose streams go on, a word every 20 ms, until they
// are released. What is asked for at /json has no header until then.
type unhurried struct{ release chan struct{} }

func newUnhurried() *unhurried { return &unhurried{make(chan struct{})} }

func (u *unhurried) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/json" {
		select {
		case <-u.release:
			_, _ = io.WriteString(w, `{"released":true}`)
		case <-r.Context().Done():
		}
		return
	}
	rig.EventStream(w)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		rig.Say(w, rig.Chunk("x"))
		select {
		case <-u.release:
			rig.Say(w, rig.Stop)
			return
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// seen is what a client has had of a response, from its beginning to its end.
type seen struct {
	resp   *http.Response
	frames []rig.Frame
	raw    string // where it is not read as frames
	err    error  // nil after a clean end
	at     time.Time
}

// last returns the last frame.
func (s *seen) last() rig.Frame {
	if len(s.frames) == 0 {
		return rig.Frame{}
	}
	return s.frames[len(s.frames)-1]
}

// errorCode is the code in the last frame.
func (s *seen) errorCode() string {
	var data struct{ Error rig.Error }
	_ = json.Unmarshal([]byte(s.last().Data), &data)
	return data.Error.Code
}

// observe sends a request and reads what comes until it ends. begun is closed
// when the first bytes of a body are there.
func observe(t *testing.T, client *http.Client, url string, q request, raw bool) (begun chan struct{}, end chan *seen) {
	t.Helper()
	begun, end = make(chan struct{}), make(chan *seen, 1)
	method := q.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.header != nil {
		req.Header = q.header
	}
	go func() {
		s := new(seen)
		defer func() { s.at = time.Now(); end <- s }()
		if s.resp, s.err = client.Do(req); s.err != nil {
			return
		}
		defer func() { _ = s.resp.Body.Close() }()
		body := bufio.NewReader(s.resp.Body)
		_, _ = body.Peek(1)
		close(begun)
		if raw {
			var b []byte
			b, s.err = io.ReadAll(body)
			s.raw = string(b)
			return
		}
		fr := rig.NewFrameReader(body)
		for {
			f, err := fr.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					s.err = err
				}
				return
			}
			s.frames = append(s.frames, f)
		}
	}()
	return begun, end
}

// ways are the ways to end a Caddy.
var ways = map[string]func(p *rig.Process) time.Time{
	"SIGTERM":    func(p *rig.Process) time.Time { return p.Signal(syscall.SIGTERM) },
	"SIGINT":     func(p *rig.Process) time.Time { return p.Signal(syscall.SIGINT) },
	"caddy stop": (*rig.Process).Stop,
}

// exits checks that the process ends well, at most limit after a moment.
func exits(t *testing.T, p *rig.Process, since time.Time, limit time.Duration) {
	t.Helper()
	if rig.Race {
		limit += 1500 * time.Millisecond
	}
	code, at, err := p.Exited(time.Until(since) + limit + 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "exit code", code, 0)
	t.Logf("the process is gone after %v", at.Sub(since).Round(time.Millisecond))
	if took := at.Sub(since); took > limit {
		t.Errorf("the process takes %v to end, more than %v", took, limit)
	}
}

// site is a Caddyfile with a site for each way to read a response.
func site(backend *rig.Backend, drain string) string {
	const options = "timeouts {\nwrite 1m\n}\n"
	return fmt.Sprintf(`ADDR {
		handle_path /plain/* {
			llm_stream {
				%[3]s %[2]s
			}
			reverse_proxy %[1]s
		}
		handle_path /kept/* {
			llm_stream {
				resume /llm {
					grace 1m
					owner anyone
					channel {http.request.header.X-Chat-Id}
				}
				%[3]s %[2]s
			}
			reverse_proxy %[1]s
		}
		handle_path /drop/* {
			llm_stream {
				slow_client disconnect
				%[3]s %[2]s
			}
			reverse_proxy %[1]s
		}
		handle_path /pass/* {
			llm_stream {
				emit passthrough
				%[3]s %[2]s
			}
			reverse_proxy %[1]s
		}
	}`, backend.Addr, drain, options)
}

var manyClients = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}

// Streams that end by themselves end well, and then the process is gone.
func TestExitWaitsForStreams(t *testing.T) {
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			u := newUnhurried()
			backend := rig.NewBackend(t, u.ServeHTTP)
			p := rig.StartProcess(t, site(backend, "drain {\ndeadline 20s\nspread 1s\n}"))
			var ends []chan *seen
			for _, at := range []string{"/plain", "/kept", "/drop", "/pass"} {
				begun, end := observe(t, manyClients, "http://"+p.Addr+at, post(`{"stream":true}`), at == "/pass")
				<-begun
				ends = append(ends, end)
			}
			end(p)
			p.AwaitLog("eternal grace period")
			time.Sleep(500 * time.Millisecond) // they go on
			close(u.release)
			last := time.Time{}
			for i, end := range ends {
				s := <-end
				last = s.at
				if s.err != nil || (i < 3 && s.last().Event != "done") || (i == 3 && !strings.HasSuffix(s.raw, rig.Stop)) {
					t.Errorf("stream %d ends with %v after %+v", i, s.err, s.last())
				}
			}
			exits(t, p, last, time.Second)
		})
	}
}

// What goes on at the deadline is told so and aborted: never a clean end in
// the middle.
func TestExitDeadline(t *testing.T) {
	backend := rig.NewBackend(t, newUnhurried().ServeHTTP)
	p := rig.StartProcess(t, site(backend, "drain {\ndeadline 2s\nspread 1s\n}"))
	url := "http://" + p.Addr
	ends := make(map[string]chan *seen)
	for _, at := range []string{"/plain", "/kept", "/drop", "/pass"} {
		begun, end := observe(t, manyClients, url+at, post(`{"stream":true}`), at == "/pass")
		<-begun
		ends[at] = end
		q := post(`{}`)
		q.path = "/json"
		_, ends[at+" json"] = observe(t, manyClients, url+at, q, true)
	}
	eventually(t, "all are there", func() bool { return backend.Calls.Load() == 8 })
	start := p.Signal(syscall.SIGTERM)
	for at, end := range ends {
		s := <-end
		if took := s.at.Sub(start); took < 2*time.Second-100*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("%s ends after %v", at, took)
		}
		switch {
		case strings.HasSuffix(at, "json"):
			if at == "/pass json" && s.err != nil {
				continue // passthrough: no error of ours
			}
			if s.err != nil {
				t.Errorf("%s: %v", at, s.err)
				continue
			}
			equal(t, at, s.resp.StatusCode, http.StatusServiceUnavailable)
			if !strings.Contains(s.raw, `"draining"`) {
				t.Errorf("%s: %s", at, s.raw)
			}
		case at == "/pass":
			if s.err == nil || strings.Contains(s.raw, "draining") {
				t.Errorf("%s ends with %v after %q", at, s.err, s.raw)
			}
		case !errors.Is(s.err, io.ErrUnexpectedEOF) || s.last().Event != "error" || s.errorCode() != "draining":
			t.Errorf("%s ends with %v after %+v", at, s.err, s.last())
		}
	}
	exits(t, p, start, 3*time.Second)
}

// flood is a backend that says more than fits between here and a client that
// reads nothing, and then no more.
func flood(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	chunk := rig.Chunk(strings.Repeat("x", 16<<10))
	for range 64 {
		rig.Say(w, chunk)
	}
	<-r.Context().Done()
}

// stallHTTP1 sends a request over HTTP/1.1 and never reads the answer.
func stallHTTP1(t *testing.T, addr, request string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
}

// stallHTTP2 sends requests over HTTP/2 with endless windows and never reads:
// it is the connection that is full, not the streams.
func stallHTTP2(t *testing.T, addr string, streams int, window uint32) {
	t.Helper()
	dialer := &tls.Dialer{
		NetDialer: new(net.Dialer),
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: "127.0.0.1"}, //nolint:gosec // a test
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.(*tls.Conn).NetConn().Close() })
	_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", addr}, {":path", "/plain/v1/chat/completions"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = framer.WriteWindowUpdate(0, 1<<30)
	for i := range streams {
		if err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
		}); err != nil {
			t.Fatal(err)
		}
		block.Reset() // the same fields are in the table by now
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", addr}, {":path", "/plain/v1/chat/completions"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
	}
}

// No number of clients that take nothing, or send nothing, keeps the process.
func TestExitWithStalledClients(t *testing.T) {
	clients, uploads := 300, 20
	if rig.Race {
		clients /= 3
	}
	backend := rig.NewBackend(t, flood)
	caddyfile := site(backend, "drain {\ndeadline 2s\n}")
	p := rig.StartProcess(t, caddyfile+"\n"+strings.Replace(caddyfile, "ADDR {", "https://TLSADDR {\ntls internal\n", 1))
	eventually(t, "TLS is there", func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}}).DialContext(t.Context(), "tcp", p.TLSAddr) //nolint:gosec // a test
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	requestLine := "POST %s/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n{}"
	paths := []string{"/plain", "/kept", "/pass", "/drop"}
	arrive := func(n int) {
		t.Helper()
		eventually(t, "all are there", func() bool { return backend.Calls.Load() >= int64(n) })
	}
	for i := range clients {
		if i%20 == 0 {
			arrive(i)
		}
		stallHTTP1(t, p.Addr, fmt.Sprintf(requestLine, paths[i%3], 2))
	}
	for i := range uploads {
		stallHTTP1(t, p.Addr, fmt.Sprintf(requestLine, paths[i%4], 1000))
	}
	for range 3 {
		stallHTTP2(t, p.TLSAddr, 3, 1<<30)
		stallHTTP2(t, p.TLSAddr, 3, 64<<10)
	}
	arrive(clients + 18)
	time.Sleep(time.Second) // until nothing fits any more
	start := p.Signal(syscall.SIGTERM)
	exits(t, p, start, 3*time.Second)
}

// With a grace_period that is shorter than the deadline every stream has its
// end before Caddy cuts it.
func TestExitWithinGracePeriod(t *testing.T) {
	backend := rig.NewBackend(t, newUnhurried().ServeHTTP)
	p := rig.StartProcess(t, "{\ngrace_period 3s\n}\n"+site(backend, "drain {\ndeadline 30s\n}"))
	var ends []chan *seen
	for range 20 {
		for _, at := range []string{"/plain", "/kept", "/drop"} {
			begun, end := observe(t, manyClients, "http://"+p.Addr+at, post(`{"stream":true}`), false)
			<-begun
			ends = append(ends, end)
		}
	}
	start := p.Signal(syscall.SIGTERM)
	for _, end := range ends {
		if s := <-end; s.errorCode() != "draining" || s.at.Sub(start) < 1900*time.Millisecond {
			t.Fatalf("after %v it ends with %v after %+v", s.at.Sub(start), s.err, s.last())
		}
	}
	exits(t, p, start, 3*time.Second)
}

// In Caddy's shutdown_delay nothing has changed for clients, only health checks
// know; the deadline counts from its end.
func TestExitAfterShutdownDelay(t *testing.T) {
	backend := rig.NewBackend(t, newUnhurried().ServeHTTP)
	p := rig.StartProcess(t, "{\nshutdown_delay 2s\n}\n"+site(backend, "drain {\ndeadline 1s\n}"))
	begun, superseded := observe(t, manyClients, "http://"+p.Addr+"/plain", post(`{}`), false)
	<-begun
	// something else is different, so the old configuration is superseded
	p.Reload("{\nshutdown_delay 2s\n}\n" + site(backend, "drain {\ndeadline 1s\nretry 3s\n}"))
	start := p.Signal(syscall.SIGTERM)
	p.AwaitLog("shutdown scheduled")
	time.Sleep(time.Second) // whoever watches for the exit has seen it
	begun, late := observe(t, manyClients, "http://"+p.Addr+"/plain", post(`{}`), false)
	<-begun
	for what, end := range map[string]chan *seen{"superseded": superseded, "late": late} {
		s := <-end
		if took := s.at.Sub(start); s.errorCode() != "draining" || took < 2900*time.Millisecond {
			t.Errorf("%s: after %v it ends with %v after %+v", what, took, s.err, s.last())
		}
	}
	exits(t, p, start, 4*time.Second)
}

// Requests that wait, and new ones on connections that are open, are turned
// away; who follows a channel is sent to another process. net/http takes no
// new request once it shuts down, so what is new was held up before us.
func TestExitTurnsAway(t *testing.T) {
	u := newUnhurried()
	backend := rig.NewBackend(t, u.ServeHTTP)
	gate := make(chan struct{})
	auth := rig.NewBackend(t, func(http.ResponseWriter, *http.Request) { <-gate })
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	options := "drain {\ndeadline 20s\nspread 1s\nretry 4s\n}"
	p := rig.StartProcess(t, strings.Replace(site(backend, options), "handle_path /plain/* {\n\t\t\tllm_stream {",
		"handle_path /plain/* {\n@late header X-Late 1\nforward_auth @late "+auth.Addr+" {\nuri /\n}\n"+
			"llm_stream {\nmax_streams 1 {\nqueue 10 1m\n}\n", 1))
	url := "http://" + p.Addr
	begun, running := observe(t, manyClients, url+"/plain", post(`{}`), false)
	<-begun
	eventSource := []string{"Accept", "text/event-stream", "Last-Event-ID", "abc"}
	_, queuedPost := observe(t, manyClients, url+"/plain", post(`{}`), true)
	_, queuedGet := observe(t, manyClients, url, get("/plain"+chatPath, eventSource...), false)
	_, latePost := observe(t, manyClients, url+"/plain", post(`{}`, "X-Late", "1"), true)
	_, lateGet := observe(t, manyClients, url, get("/plain"+chatPath, append(eventSource, "X-Late", "1")...), false)
	_, channel := observe(t, manyClients, url, get("/kept/llm/channels/c1", "Accept", "text/event-stream"), false)
	eventually(t, "two are held up", func() bool { return auth.Calls.Load() == 2 })
	time.Sleep(300 * time.Millisecond) // and two wait in the queue
	start := p.Signal(syscall.SIGTERM)
	p.AwaitLog("eternal grace period")

	s := <-queuedPost
	checkTurnedAway(t, "queued POST", s)
	checkSentOn(t, "queued EventSource", <-queuedGet, "abc")
	open()
	checkTurnedAway(t, "late POST", <-latePost)
	checkSentOn(t, "late EventSource", <-lateGet, "abc")
	s = <-channel
	checkSentOn(t, "channel", s, "")
	if took := s.at.Sub(start); took > 1500*time.Millisecond {
		t.Errorf("the channel's client is sent on after %v", took)
	}
	close(u.release)
	s = <-running
	equal(t, "end", s.last().Event, "done")
	exits(t, p, s.at, time.Second)
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

func checkTurnedAway(t *testing.T, what string, s *seen) {
	t.Helper()
	if s.err != nil {
		t.Fatalf("%s: %v", what, s.err)
	}
	after, err := strconv.Atoi(s.resp.Header.Get("Retry-After"))
	if s.resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(s.raw, `"code":"draining"`) || err != nil || after < 1 {
		t.Errorf("%s: %s, Retry-After %q, %s", what, s.resp.Status, s.resp.Header.Get("Retry-After"), s.raw)
	}
}

// checkSentOn checks that a client had one reconnect frame with the id that it
// came with, and then a clean end.
func checkSentOn(t *testing.T, what string, s *seen, id string) {
	t.Helper()
	var data struct {
		Reason  string
		RetryMS int `json:"retry_ms"`
	}
	_ = json.Unmarshal([]byte(s.last().Data), &data)
	if s.err != nil || s.resp.StatusCode != http.StatusOK || len(s.frames) != 1 || s.last().Event != "reconnect" ||
		data.Reason != "exit" || s.last().Retry != strconv.Itoa(data.RetryMS) || data.RetryMS <= 0 ||
		(id != "" && s.last().ID != id) {
		t.Errorf("%s: %v after %+v", what, s.err, s.frames)
	}
}

// Streams of configurations that were replaced are drained as well.
func TestExitDrainsSuperseded(t *testing.T) {
	for name, next := range map[string]string{
		"no llm_stream":    "ADDR {\nrespond ok\n}",
		"no site":          "",
		"grace_period":     "{\ngrace_period 4s\n}\nADDR {\nrespond ok\n}",
		"llm_stream again": "SITE",
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnhurried()
			backend := rig.NewBackend(t, u.ServeHTTP)
			// with on_reload off also those stay that could come back, and Caddy
			// soon waits for them no more
			first := "{\ngrace_period 100ms\n}\n" + site(backend, "drain {\ndeadline 2s\non_reload off\n}")
			first = strings.Replace(first, "handle_path /plain/* {\n\t\t\tllm_stream {",
				"handle_path /plain/* {\n\t\t\tllm_stream {\nmax_streams 1 {\nqueue 10 1m\n}\n", 1)
			p := rig.StartProcess(t, first)
			url := "http://" + p.Addr
			leading, leader := observe(t, manyClients, url+"/plain", post(`{}`), false)
			<-leading
			queued, waiting := observe(t, manyClients, url+"/plain", post(`{}`), false)
			begun, kept := observe(t, manyClients, url+"/kept", post(`{}`), false)
			<-begun
			time.Sleep(100 * time.Millisecond) // it waits in the queue
			p.Reload(strings.Replace(next, "SITE", site(backend, "drain {\ndeadline 10s\n}"), 1))
			time.Sleep(500 * time.Millisecond) // longer than grace_period
			u.release <- struct{}{}            // one of the two that run ends
			var ends []chan *seen
			select {
			case s := <-leader:
				equal(t, "end", s.last().Event, "done")
				<-queued // its turn has come
				ends = append(ends, waiting, kept)
			case s := <-kept:
				equal(t, "end", s.last().Event, "done")
				ends = append(ends, leader)
			}
			start := p.Signal(syscall.SIGTERM)
			for _, end := range ends {
				s := <-end
				if took := s.at.Sub(start); s.errorCode() != "draining" || took < 1500*time.Millisecond {
					t.Errorf("after %v it ends with %v after %+v", took, s.err, s.last())
				}
			}
			exits(t, p, start, 3500*time.Millisecond)
		})
	}
}

// rollingRequests is how many clients a rolling restart has.
const rollingRequests = 40

// loop is a client of a load balancer that does what the README tells: it comes
// back after a failure, with the id it has, and asks anew where that is not
// known any more. It returns the text of a response that has come to its end.
func loop(t *testing.T, url string) (text string, tries int) {
	t.Helper()
	last := ""
	for tries = 1; tries < 50; tries++ {
		q := post(`{"stream":true}`)
		if last != "" {
			q.header.Set("Last-Event-ID", last)
		}
		_, end := observe(t, manyClients, url, q, false)
		s := <-end
		if s.resp == nil || s.resp.StatusCode != http.StatusOK {
			if s.resp != nil && (s.resp.StatusCode == http.StatusNotFound || s.resp.StatusCode == http.StatusGone) {
				last, text = "", ""
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for _, f := range s.frames {
			var data struct{ Text string }
			_ = json.Unmarshal([]byte(f.Data), &data)
			if f.Event == "" {
				text += data.Text
				last = f.ID
			}
		}
		if s.last().Event == "done" {
			return text, tries
		}
		if s.last().Event == "error" {
			last, text = "", ""
		}
	}
	t.Error("no response comes to its end")
	return "", tries
}

// A rolling restart of two Caddies behind a TCP balancer: streams finish, new
// ones go to the other, and nobody loses anything.
func TestRollingRestart(t *testing.T) {
	const words = 50
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for i := range words {
			rig.Say(w, rig.Chunk(fmt.Sprintf("t%d ", i)))
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		rig.Say(w, rig.Stop)
	})
	caddyfile := fmt.Sprintf("ADDR {\nrespond /health ok\nllm_stream {\nresume /llm\ndrain {\ndeadline 10s\n}\n}\nreverse_proxy %s\n}", backend.Addr)
	nodes := []*rig.Process{rig.StartProcess(t, caddyfile), rig.StartProcess(t, caddyfile)}
	balancer := rig.StartBalancer(t, nodes[0].Addr, nodes[1].Addr)

	stop := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	var responses, tries int
	for range rollingRequests {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				text, n := loop(t, "http://"+balancer)
				mu.Lock()
				responses, tries = responses+1, tries+n
				mu.Unlock()
				if want := wantText(words); text != want {
					t.Errorf("a client has had %q", text)
				}
			}
		})
	}
	time.Sleep(1500 * time.Millisecond)
	start := nodes[0].Signal(syscall.SIGTERM)
	exits(t, nodes[0], start, 3*time.Second) // its streams take one second
	time.Sleep(time.Second)
	close(stop)
	clients.Wait()
	t.Logf("%d responses, %d tries, %d upstream calls", responses, tries, backend.Calls.Load())
	equal(t, "upstream calls for each response", backend.Calls.Load(), int64(responses))
	if dump, err := httputil.DumpResponse(get("/health").at(t, balancer), true); err != nil || !strings.Contains(string(dump), "ok") {
		t.Errorf("the other node: %v %s", err, dump)
	}
}

// at sends the request to an address.
func (q request) at(t *testing.T, addr string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+q.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := manyClients.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
