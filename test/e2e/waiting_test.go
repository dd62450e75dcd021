package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// busySite is a site whose one place is taken until it is released, and where a
// request with the idempotency key k waits for it.
type busySite struct {
	*rig.Caddy
	backend *rig.Backend
	release chan struct{}
	leave   context.CancelFunc // lets the client that waits leave
	waiting chan *http.Response
}

func newBusySite(t *testing.T, wait time.Duration) *busySite {
	t.Helper()
	s := &busySite{release: make(chan struct{})}
	first := make(chan struct{}, 1)
	first <- struct{}{}
	s.backend = rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-first:
			<-s.release
		default:
		}
		whole3(w, r)
	})
	s.Caddy = rig.Start(t, fmt.Sprintf(withMetrics, fmt.Sprintf(
		"resume /llm {\ngrace 20ms\n}\n%sheartbeat 10ms\nmax_streams 1 {\nqueue 10 %v\n}", quickDrain, wait), s.backend.Addr))
	go func() {
		if resp, err := post(`{"stream":true}`).try(t.Context(), s.Caddy); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	eventually(t, "the place is taken", func() bool { return s.backend.Calls.Load() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	s.leave = leave
	s.waiting = s.ask(ctx, t)
	s.awaitQueue(t, 1)
	return s
}

// ask sends the request with the key, and returns where its response comes to;
// nil where it has none.
func (s *busySite) ask(ctx context.Context, t *testing.T) chan *http.Response {
	t.Helper()
	answer := make(chan *http.Response, 1)
	go func() {
		resp, err := post(`{"stream":true}`, "Idempotency-Key", "k").try(ctx, s.Caddy)
		if err == nil {
			t.Cleanup(func() { _ = resp.Body.Close() })
		}
		answer <- resp
	}()
	return answer
}

func (s *busySite) awaitQueue(t *testing.T, n float64) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " wait"), func() bool { return scrape(t, s.Caddy)["queued"] == n })
}

// again sends the same request once more and lets it wait with the first.
func (s *busySite) again(ctx context.Context, t *testing.T) chan *http.Response {
	t.Helper()
	clients := scrape(t, s.Caddy)["active_clients"]
	waiting := s.ask(ctx, t)
	eventually(t, "it waits too", func() bool { return scrape(t, s.Caddy)["active_clients"] > clients })
	time.Sleep(30 * time.Millisecond) // in which heartbeats must not commit it
	return waiting
}

// A client that waits is let out of the queue when its response is cancelled.
func TestCancelWhileQueued(t *testing.T) {
	s := newBusySite(t, time.Minute)
	defer close(s.release)
	cancel := request{method: http.MethodPost, path: "/llm/cancel?idempotency_key=k", header: http.Header{}}
	equal(t, "status", cancel.do(t, s.Caddy).StatusCode, http.StatusOK)
	equal(t, "status of the one who waits", (<-s.waiting).StatusCode, 499)
	s.awaitQueue(t, 0)
	equal(t, "upstream calls", s.backend.Calls.Load(), 1)
}

// A duplicate that leaves does not let the time begin after which a response
// that no client reads is given up: one waits for it.
func TestDuplicateLeavesTheQueue(t *testing.T) {
	s := newBusySite(t, time.Minute)
	clients := scrape(t, s.Caddy)["active_clients"]
	ctx, leave := context.WithCancel(t.Context())
	duplicate := s.again(ctx, t)
	leave()
	<-duplicate
	eventually(t, "it has left", func() bool { return scrape(t, s.Caddy)["active_clients"] == clients })
	time.Sleep(50 * time.Millisecond) // longer than grace
	close(s.release)
	equal(t, "done", rig.ReadAnswer(t, (<-s.waiting).Body).Done != nil, true)
}

// A duplicate of a request that waits takes over when that one leaves.
func TestDuplicateTakesOverInTheQueue(t *testing.T) {
	s := newBusySite(t, time.Minute)
	waiting := s.again(t.Context(), t)
	s.leave()
	<-s.waiting
	s.awaitQueue(t, 1)
	close(s.release)
	equal(t, "text", rig.ReadAnswer(t, (<-waiting).Body).Done != nil, true)
	equal(t, "upstream calls", s.backend.Calls.Load(), 2)
}

// A duplicate of a request that waits too long waits in its turn, and is told
// why it is turned away.
func TestDuplicateInTheQueueIsTurnedAway(t *testing.T) {
	s := newBusySite(t, 300*time.Millisecond)
	defer close(s.release)
	waiting := s.again(t.Context(), t)
	turnedAwayWith(t, <-s.waiting, "queue_timeout")
	turnedAwayWith(t, <-waiting, "queue_timeout")
	equal(t, "upstream calls", s.backend.Calls.Load(), 1)
}

// When the client that asked has left, the others learn what the upstream has said.
func TestUpstreamErrorForThoseWhoFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status string
	}{
		"a status": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"no luck"}}`, http.StatusTooManyRequests)
		}, "no luck"},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the upstream call failed"},
	} {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", the first stays: ", stays), func(t *testing.T) {
				answer := make(chan struct{})
				backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-answer
					tc.answer(w, r)
				})
				c := rig.Start(t, fmt.Sprintf(withMetrics, "resume /llm\n"+quickDrain+"heartbeat 10ms\n", backend.Addr))
				before := atRest(t, c)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first, err := post(`{"stream":true}`).try(ctx, c)
				if err != nil {
					t.Fatal(err)
				}
				defer first.Body.Close()
				id := first.Header.Get("X-Response-Id")
				follower := get("/llm/streams/"+id, "Accept", "text/event-stream").do(t, c)
				if !stays {
					leave()
					eventually(t, "it has left", func() bool { return scrape(t, c)["active_clients"] == 1 })
				}
				close(answer)
				got := rig.ReadAnswer(t, follower.Body)
				if got.Error == nil || got.Error.Code != "upstream_error" {
					t.Fatalf("the follower has %+v", got.Error)
				}
				if told := got.Error.Message + string(got.Error.Upstream); !strings.Contains(told, tc.status) {
					t.Errorf("it is told %s", told)
				}
				label := `streams_total{format="unknown",outcome="upstream_error"}`
				eventually(t, "it is counted", func() bool { return scrape(t, c)[label]-before[label] == 1 })
			})
		}
	}
}

// A response that was given up before it had any output may be asked for again.
func TestAbandonedKeyIsFreed(t *testing.T) {
	var backend *rig.Backend
	c, backend := keep(t, "grace 10ms", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		backend.Left(r)
	})
	ask := func() {
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		if resp, err := post(`{"stream":true}`, "Idempotency-Key", "k").try(ctx, c); err == nil {
			_ = resp.Body.Close()
		}
	}
	ask()
	<-backend.Gone
	eventually(t, "the upstream is called again", func() bool { ask(); return backend.Calls.Load() > 1 })
}
