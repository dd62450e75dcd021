package relay_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

// At a reload those are sent away that can come back: who reads a resumable
// response as text, also before its first token. They go on at the next token.
func TestReload(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		way     way
		dialect string
		path    string
		body    string
		reload  time.Duration
		away    bool
	}{
		"resumable":                         {way: resumable, body: streams, reload: 3 * time.Second, away: true},
		"resumable, before the first token": {way: resumable, body: streams, reload: time.Second, away: true},
		"resumable, where it is not known whether it will be a stream": {way: resumable, body: unsaid, reload: time.Second},
		"resumable, in another dialect":                                {way: resumable, dialect: "openai", body: streams, reload: 3 * time.Second},
		"attached":                                                     {way: attached, body: streams, reload: 3 * time.Second},
		"tied":                                                         {way: tied, body: streams, reload: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, tc.way, script(2*time.Second, enginetest.Delta("a"), 20*time.Second, enginetest.Delta("b"), enginetest.Stop), func(s *site) { s.Limits.Heartbeat = 0 })
				x := s.request(t, tc.body)
				if tc.dialect != "" {
					x.Dialect = tc.dialect
				}
				x.send()
				time.Sleep(tc.reload)
				s.group.Reload(drain.OnReload)
				x.wait()
				equal(t, "aborted", x.aborted, false)
				contains(t, x.Body(), "a")
				if !tc.away && tc.reload == 3*time.Second {
					equal(t, "took", x.took, 22*time.Second)
					equal(t, "sent away", strings.Contains(x.Body(), "reconnect"), false)
					return
				}
				if x.took > tc.reload+5*time.Second {
					t.Errorf("it was sent away after %v", x.took)
				}
				contains(t, x.Body(), "event: reconnect\nretry: ")
				contains(t, x.Body(), `data: {"reason":"reload","retry_ms":`)
				last := x.Body()[strings.LastIndex(x.Body(), "id: "):]
				id, _, _ := strings.Cut(strings.TrimPrefix(last, "id: "), "\n")
				y := s.successor().ask(t, "", "Last-Event-ID", id).wait()
				equal(t, "the rest", strings.HasSuffix(y.Body(), y.frame(2, "b")+y.stopped(3)), true)
				equal(t, "calls", s.calls.Load(), 1)
				x.wantOutcome(t, "done")
				equal(t, "members that are left", s.group.Len(), 0)
			})
		})
	}
}

// Those that are sent away at a reload are so over a time, not all at once.
func TestReloadIsSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, script(enginetest.Delta("a"), 20*time.Second, enginetest.Stop))
		var clients []*exchange
		for range 50 {
			clients = append(clients, s.ask(t, streams))
		}
		synctest.Wait()
		s.group.Reload(drain.OnReload)
		moments := make(map[time.Duration]bool)
		for _, x := range clients {
			moments[x.wait().took] = true
			if x.took > 5*time.Second {
				t.Errorf("one was sent away after %v", x.took)
			}
		}
		if len(moments) < 40 {
			t.Errorf("%d moments", len(moments))
		}
		time.Sleep(time.Minute)
	})
}

// At the exit what runs goes on to the deadline; then each response ends with
// the error of its dialect and an aborted connection, or, where nothing was
// sent, with a status that tells to come again.
func TestExitDeadline(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk", "plain"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			inEveryWay(t, func(t *testing.T, w way) {
				s := newSite(t, w, script(2*time.Second, enginetest.Delta("a"), never), func(s *site) { s.Limits.Heartbeat = 0 })
				ended := newSite(t, w, script(2*time.Second, enginetest.Delta("a"), enginetest.Stop))
				silent := newSite(t, w, script(never), func(s *site) { s.Limits.Heartbeat = 0 })
				send := func(s *site) *exchange {
					x := s.request(t, streams)
					x.Dialect = dialect
					return x.send()
				}
				x, y, z := send(s), send(ended), send(silent)
				deadline := time.Now().Add(10 * time.Second)
				for _, s := range []*site{s, ended, silent} {
					s.group.Exit(deadline)
				}
				x.wait()
				equal(t, "took", x.took-x.took%time.Second, 10*time.Second)
				equal(t, "aborted", x.aborted, true)
				if dialect != "plain" {
					contains(t, x.Body(), map[string]string{"ai-sdk": `"errorText":`}[dialect])
					contains(t, x.Body(), "shutting down")
				}
				x.wantOutcome(t, "drained")
				y.wait()
				equal(t, "what ends before", y.aborted, false)
				equal(t, "took", y.took, 2*time.Second)
				y.wantOutcome(t, "done")
				z.wait().wantStatus(t, http.StatusServiceUnavailable, "draining")
				equal(t, "Retry-After", z.Got().Get("Retry-After") != "", true)
				z.wantOutcome(t, "drained")
				synctest.Wait()
				for _, s := range []*site{s, ended, silent} {
					equal(t, "members that are left", s.group.Len(), 0)
					equal(t, "streams that are left", s.count(t, "active_streams"), 0)
				}
			})
		})
	}
}

// A response that nobody reads is drained as well: the exit waits for its
// producer, and ends it at the deadline with its outcome.
func TestExitDeadlineOfAResponseInItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, script(enginetest.Delta("a"), never))
		x := s.ask(t, streams)
		time.Sleep(time.Second)
		x.leave()
		x.wait()
		equal(t, "members", s.group.Len(), 1)
		s.group.Exit(time.Now().Add(10 * time.Second))
		time.Sleep(10*time.Second - time.Millisecond)
		equal(t, "members before the deadline", s.group.Len(), 1)
		x.wantOutcome(t, "")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		equal(t, "members after it", s.group.Len(), 0)
		x.wantOutcome(t, "drained")
		equal(t, "log lines", s.logs.FilterMessage("response ended").Len(), 1)
	})
}

// At the deadline an EventSource that has heard nothing is told to come back.
func TestExitDeadlineOfAnEventSource(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, script(never), func(s *site) { s.Limits.Heartbeat = 0 })
		x := s.request(t, "", "Accept", "text/event-stream")
		x.Request.Method, x.Request.Body, x.Request.ContentLength = http.MethodGet, http.NoBody, 0
		x.send()
		synctest.Wait()
		s.group.Exit(time.Now().Add(10 * time.Second))
		x.wait()
		equal(t, "status", x.Status(), http.StatusOK)
		equal(t, "frame", strings.HasPrefix(x.Client.Body(), "event: reconnect\nretry: "), true)
		contains(t, x.Client.Body(), `"reason":"exit"`)
		equal(t, "aborted", x.aborted, false)
	})
}

// What follows a channel has no end of its own: it is always sent away.
func TestChannelFollowersAreSentAway(t *testing.T) {
	t.Parallel()
	for reason, begin := range map[string]func(g *drain.Group){
		"reload": func(g *drain.Group) { g.Reload(drain.OnReload) },
		"exit":   func(g *drain.Group) { g.Exit(time.Now().Add(10 * time.Second)) },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, resumable, script(time.Second, enginetest.Delta("a"), enginetest.Stop), func(s *site) { s.spec.Channel = "chat" })
				follow := func(from string) *exchange {
					return s.request(t, "").serve(func(q *relay.Request) error { return s.Channel(q, fanout.Access{}, "chat", true, from) })
				}
				f := follow("")
				s.ask(t, streams).wait()
				time.Sleep(50 * time.Second)
				synctest.Wait()
				equal(t, "heartbeats", f.Heartbeats(), 3)
				begin(s.group)
				f.wait()
				equal(t, "aborted", f.aborted, false)
				for _, part := range []string{"event: started\n", `"text":"a"`, "event: done\n", "event: ended\n", `"reason":"` + reason + `"`} {
					equal(t, part, strings.Count(f.Body(), part), 1)
				}
				follow("nonsense").wait().wantStatus(t, http.StatusBadRequest, "bad_cursor")
			})
		})
	}
}
