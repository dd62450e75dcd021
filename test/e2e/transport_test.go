package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// pair is a Caddy before two backends, of which the first one is asked first.
type pair struct {
	*rig.Caddy
	bad, good *rig.Backend
	bodies    sync.Map // of the requests that the good one has had
}

// newPair runs one. proxy has options of reverse_proxy, transport those of the
// transport.
func newPair(t *testing.T, llm, proxy, transport string, bad http.HandlerFunc) *pair {
	t.Helper()
	p := new(pair)
	p.bad = rig.NewBackend(t, bad)
	p.good = rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.bodies.Store(string(body), true)
		r.Body = http.NoBody
		whole3(w, r)
	})
	p.Caddy = rig.Start(t, fmt.Sprintf("ADDR {\n\tmetrics /metrics\n%s\n\treverse_proxy %s %s {\n%s\n\t\ttransport llm_stream {\n%s\n\t\t}\n\t}\n}",
		llm, p.bad.Addr, p.good.Addr, proxy, transport))
	return p
}

// downAtOnce asks one backend before the other, and takes one that fails for down.
const downAtOnce = "lb_policy first\nlb_retries 1\nfail_duration 1m"

// failings are ways in which a backend takes a request and does not answer it.
var failings = map[string]http.HandlerFunc{
	"silent": func(_ http.ResponseWriter, r *http.Request) { drain(r); <-r.Context().Done() },
	"silent after its header": func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		rig.EventStream(w)
		flush(w)
		<-r.Context().Done()
	},
	"silent but for pings": func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		rig.EventStream(w)
		for r.Context().Err() == nil {
			rig.Say(w, ": ping\n\n", `data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}`+"\n\n")
			time.Sleep(10 * time.Millisecond)
		}
	},
	"an error first": func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		rig.EventStream(w)
		rig.Say(w, `data: {"error":{"message":"overloaded","type":"overloaded_error"}}`+"\n\n")
	},
	"an error after the role": func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		rig.EventStream(w)
		rig.Say(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}`+"\n\n", `data: {"error":{"message":"overloaded"}}`+"\n\n")
	},
	"nothing":      func(w http.ResponseWriter, r *http.Request) { drain(r); rig.EventStream(w); flush(w) },
	"a role alone": func(w http.ResponseWriter, r *http.Request) { drain(r); rig.EventStream(w); rig.Say(w, rig.Chunk("")) },
	"aborted": func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		rig.EventStream(w)
		flush(w)
		panic(http.ErrAbortHandler)
	},
	"aborted before": func(_ http.ResponseWriter, r *http.Request) { drain(r); panic(http.ErrAbortHandler) },
}

// limitFor returns the limit for a failing: a short one where nothing but the limit
// ends the silence, and else one that no slow machine reaches.
func limitFor(failing string) string {
	if strings.HasPrefix(failing, "silent") {
		return "first_token 500ms"
	}
	return "first_token 1m"
}

// attemptsIn returns how many attempts the metric has counted.
func attemptsIn(metrics map[string]float64) int {
	sum := 0.0
	for name, value := range metrics {
		if strings.HasPrefix(name, "upstream_attempts_total{") {
			sum += value
		}
	}
	return int(sum)
}

func drain(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// whatever the first backend does instead of answering, the client gets the whole
// stream of the second: also where the first is asked again and again, and where
// failures count, after one call of it in all.
func TestNextBackendBeforeTheFirstToken(t *testing.T) {
	for name, bad := range failings {
		for way, llm := range map[string]string{ //nolint:gosec // options, no credentials
			"text": "llm_stream", "resume": "llm_stream {\nresume /llm\n}", "passthrough": "llm_stream {\nemit passthrough\n}", "alone": "",
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				for _, proxy := range []string{"lb_policy round_robin\nlb_retries 1", downAtOnce} {
					requests, calls := 50, 1
					if proxy != downAtOnce {
						if strings.HasPrefix(name, "silent") {
							requests = 4 // each other one waits for the limit
						}
						calls = requests
					}
					if name == "aborted before" {
						proxy += "\nlb_retry_match {\nmethod POST\n}" // it may have been answered: Caddy's own rule
					}
					p := newPair(t, llm, proxy, limitFor(name), bad)
					before := attemptsIn(atRest(t, p.Caddy))
					for range requests {
						resp := post(`{"stream":true}`).do(t, p.Caddy)
						got, err := body(t, resp)
						if err != nil || resp.StatusCode != http.StatusOK || strings.Count(got, "data: ") < 3 || strings.Contains(got, "error") {
							t.Fatalf("%d %v %.300q", resp.StatusCode, err, got)
						}
					}
					equal(t, "calls of the good one", p.good.Calls.Load(), int64(requests))
					equal(t, "attempts", attemptsIn(atRest(t, p.Caddy))-before, int(p.good.Calls.Load()+p.bad.Calls.Load()))
					if got := int(p.bad.Calls.Load()); got < min(calls, requests/2) || got > calls {
						t.Errorf("%d calls of the bad one, at most %d: %s", got, calls, proxy)
					}
				}
			})
		}
	}
}

// When no backend answers, the client is told what the last one said.
func TestNoBackendAnswers(t *testing.T) {
	for name, want := range map[string]struct {
		status int
		code   string
	}{
		"silent": {http.StatusGatewayTimeout, "first_token_timeout"}, "silent after its header": {http.StatusGatewayTimeout, "first_token_timeout"},
		"an error first": {529, "upstream_error"}, "nothing": {http.StatusBadGateway, "upstream_truncated"},
	} {
		for way, llm := range map[string]string{"attached": "llm_stream", "resume": "llm_stream {\nresume /llm\n}", "tied": "llm_stream {\nslow_client drop\n}"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				backends := []*rig.Backend{rig.NewBackend(t, failings[name]), rig.NewBackend(t, failings[name])}
				c := rig.Start(t, fmt.Sprintf("ADDR {\n%s\n\treverse_proxy %s %s {\nlb_policy first\nlb_retries 1\nfail_duration 1m\ntransport llm_stream {\n%s\n}\n}\n}",
					llm, backends[0].Addr, backends[1].Addr, limitFor(name)))
				resp := post(`{"stream":true}`).do(t, c)
				equal(t, "status", resp.StatusCode, want.status)
				equal(t, "code", errorCode(t, resp), want.code)
				for i, b := range backends {
					equal(t, fmt.Sprint("calls of ", i), b.Calls.Load(), 1)
				}
			})
		}
	}
}

// The time to the first token is the limit of the silent one and the second's own,
// heartbeats go on meanwhile, and the log, the metric and a placeholder say how many
// there were.
func TestHeartbeatsWhileBackendsChange(t *testing.T) {
	p := newPair(t, "header >X-Attempts {http.llm_stream.attempts}\nllm_stream {\nheartbeat 50ms\n}", downAtOnce, "first_token 400ms", failings["silent"])
	before := atRest(t, p.Caddy)
	begin := time.Now()
	resp := post(`{"stream":true}`).do(t, p.Caddy)
	a := rig.ReadAnswer(t, resp.Body)
	took := time.Since(begin)
	if a.Done == nil || a.Comments < 1 || took < 400*time.Millisecond || took > atLatest(1500*time.Millisecond) {
		t.Errorf("after %v: %d heartbeats, %+v", took, a.Comments, a)
	}
	after := atRest(t, p.Caddy)
	changed(t, before, after, map[string]float64{
		`upstream_attempts_total{result="first_token_timeout"}`: 1, `upstream_attempts_total{result="answered"}`: 1,
		`streams_total{format="openai-chat",outcome="done"}`: 1,
	})
	for _, said := range []string{`"msg":"a backend has not begun to answer"`, `"attempt":1`, `"upstream":"` + p.bad.Addr} {
		if !strings.Contains(p.Logs(), said) {
			t.Errorf("the log does not have %s", said)
		}
	}
}

// Once the model has said something, it is its answer, however it ends. Nor is
// another backend asked for a client that has left, or for one that does not ask for
// a stream and waits longer than a first token may take.
func TestNoOtherBackend(t *testing.T) {
	bad := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		switch r.Header.Get("X-Case") {
		case "dies":
			rig.EventStream(w)
			rig.Say(w, rig.Chunk("a"))
			panic(http.ErrAbortHandler)
		case "whole":
			select {
			case <-time.After(300 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"whole"}}]}`)
		case "left":
			<-r.Context().Done()
		case "busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "empty":
			rig.EventStream(w)
			rig.Say(w, rig.Stop)
		}
	})
	proxy := strings.Replace(downAtOnce, "1", "3", 1)
	p := newPair(t, "llm_stream", proxy, "first_token 100ms", bad)
	if got, _ := body(t, post(`{"stream":false}`, "X-Case", "whole").do(t, p.Caddy)); !strings.Contains(got, `"content":"whole"`) {
		t.Errorf("whole: %q", got)
	}
	equal(t, "calls of the other one", p.good.Calls.Load(), 0)

	p = newPair(t, "llm_stream", proxy, "first_token 1m", bad)
	for kind, want := range map[string]string{"dies": "upstream_truncated", "busy": "", "empty": `{"finish_reason":"stop"}`} {
		got, _ := body(t, post(`{"stream":true}`, "X-Case", kind).do(t, p.Caddy))
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q", kind, got)
		}
	}
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if resp, err := post(`{"stream":true}`, "X-Case", "left").try(ctx, p.Caddy); err == nil {
		_, _ = body(t, resp)
	}
	eventually(t, "all are gone", func() bool { return atRest(t, p.Caddy)["active_clients"] <= 1 })
	equal(t, "calls of the other one", p.good.Calls.Load(), 0)
	_, _ = body(t, post(`{"stream":true}`, "X-Case", "empty").do(t, p.Caddy))
	equal(t, "calls of the other one", p.good.Calls.Load(), 0) // no failure has been counted
}

// What a request says, the next backend gets as well; a body that is too long to be
// held is sent once.
func TestBodiesAreSentAgain(t *testing.T) {
	pad := strings.Repeat("x", 700<<10)
	var p *pair
	for _, text := range []string{`{"stream":true}`, `{"stream":true,"pad":"` + pad + `"}`} {
		p = newPair(t, "llm_stream", downAtOnce, "first_token 1m", failings["an error first"])
		got, err := body(t, post(text).do(t, p.Caddy))
		if _, had := p.bodies.Load(text); !had || err != nil || !strings.Contains(got, "finish_reason") {
			t.Errorf("a body of %d bytes: %v %.200q", len(text), err, got)
		}
	}
	p = newPair(t, "llm_stream", downAtOnce, "first_token 1m", failings["an error first"])
	resp := post(`{"stream":true,"pad":"`+pad+pad+`"}`).do(t, p.Caddy)
	equal(t, "code", errorCode(t, resp), "upstream_error")
	equal(t, "calls with a long body", p.good.Calls.Load(), 0)
}

// A backend that cannot be reached has read nothing of a body: it goes to the next
// one whole, however long it is, as it does with Caddy's own transport.
func TestLongBodyAfterRefusedConnection(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	text := `{"stream":true,"pad":"` + strings.Repeat("x", 1500<<10) + `"}`
	for _, llm := range []string{"", "llm_stream", "llm_stream {\nresume /llm\n}"} {
		good := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
			if had, err := io.ReadAll(r.Body); err != nil || string(had) != text {
				t.Errorf("%q: the backend has %d bytes of %d: %v", llm, len(had), len(text), err)
			}
			r.Body = http.NoBody
			whole3(w, r)
		})
		c := rig.Start(t, fmt.Sprintf("ADDR {\n%s\nreverse_proxy %s %s {\n%s\ntransport llm_stream\n}\n}", llm, closed.Addr(), good.Addr, downAtOnce))
		for range 2 { // no failure has been counted of the good one
			got, err := body(t, post(text).do(t, c))
			if err != nil || !strings.Contains(got, "finish_reason") {
				t.Errorf("%q: %v %.200q", llm, err, got)
			}
		}
	}
}

// A client that leaves while it sends its request takes no backend down.
func TestClientLeavesWhileItSends(t *testing.T) {
	for _, llm := range []string{"", "llm_stream", "llm_stream {\nresume /llm\n}"} {
		good := rig.NewBackend(t, whole3)
		c := rig.Start(t, fmt.Sprintf("ADDR {\n%s\nreverse_proxy %s {\nfail_duration 1m\ntransport llm_stream\n}\n}", llm, good.Addr))
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: "+c.Addr+
			"\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"stream\":true")
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the server is done with it
		_ = conn.Close()
		equal(t, "status for the next client", post(`{"stream":true}`).do(t, c).StatusCode, http.StatusOK)
	}
}

// lb_retry_match decides where it is set.
func TestRetryMatchDecides(t *testing.T) {
	p := newPair(t, "llm_stream", "lb_policy round_robin\nlb_retries 1\nlb_retry_match {\nheader X-Again 1\n}", "first_token 1m", failings["nothing"])
	statuses := make(map[int]int)
	for range 10 {
		statuses[post(`{"stream":true}`).do(t, p.Caddy).StatusCode]++
	}
	equal(t, "not matched", fmt.Sprint(statuses), "map[200:5 502:5]")
	for range 10 {
		equal(t, "matched", post(`{"stream":true}`, "X-Again", "1").do(t, p.Caddy).StatusCode, http.StatusOK)
	}
}

// All options of Caddy's transport are the transport's too.
func TestTransportOptions(t *testing.T) {
	backend := rig.NewBackend(t, whole3)
	c := rig.Start(t, "ADDR {\nreverse_proxy "+backend.Addr+" {\ntransport llm_stream {\ndial_timeout 3s\nfirst_token off\nkeepalive off\nversions 1.1\n}\n}\n}")
	got, err := body(t, post(`{"stream":true}`).do(t, c))
	if err != nil || !strings.HasSuffix(got, rig.Stop) {
		t.Errorf("%v %q", err, got)
	}
	for option, want := range map[string]string{"first_token": "first_token", "first_token 1x": "first_token", "unheard of": "unrecognized subdirective"} {
		err := c.TryLoad("ADDR {\nreverse_proxy " + backend.Addr + " {\ntransport llm_stream {\n" + option + "\n}\n}\n}")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", option, err)
		}
	}
}
