package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// ways are the ways to end a Caddy.
var ways = map[string]func(p *rig.Process) time.Time{
	"SIGTERM":    func(p *rig.Process) time.Time { return p.Signal(syscall.SIGTERM) },
	"SIGINT":     func(p *rig.Process) time.Time { return p.Signal(syscall.SIGINT) },
	"caddy stop": (*rig.Process).Stop,
}

// exits checks that the process ends well, at most limit after a moment.
func exits(t *testing.T, p *rig.Process, since time.Time, limit time.Duration) {
	t.Helper()
	limit = atLatest(limit)
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
		if took := s.at.Sub(start); took < 2*time.Second-100*time.Millisecond || took > atLatest(2500*time.Millisecond) {
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
	time.Sleep(time.Second) // what watches for the exit has seen it
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
// away; a follower of a channel is sent to another process. net/http takes no
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
	if took := s.at.Sub(start); took > atLatest(1500*time.Millisecond) {
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
