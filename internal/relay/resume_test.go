package relay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

// threeDeltas is a backend that takes its time.
var threeDeltas = script(time.Second, enginetest.Delta("a"), time.Second, enginetest.Delta("b"), time.Second, enginetest.Delta("c"), time.Second, enginetest.Stop)

// A client that comes back goes on after what it has had, at every index, while
// the response runs and after its end, and no backend is called again.
func TestResumeAtEveryIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, threeDeltas)
		first := s.ask(t, streams)
		time.Sleep(2500 * time.Millisecond)
		all := []string{first.frame(1, "a"), first.frame(2, "b"), first.frame(3, "c"), first.stopped(4)}
		resume := func(index string) *exchange { return s.ask(t, "", "Last-Event-ID", first.id()+":"+index) }
		running := []*exchange{resume("0"), resume("1"), resume("2")}
		first.wait()
		equal(t, "from the start, caught up", running[0].wait().Body(), first.frame(2, "ab")+all[2]+all[3])
		equal(t, "after 1", running[1].wait().Body(), strings.Join(all[1:], ""))
		equal(t, "after 2", running[2].wait().Body(), strings.Join(all[2:], ""))
		for index, want := range map[string]string{
			"0": first.frame(3, "abc") + all[3], "1": first.frame(3, "bc") + all[3], "2": all[2] + all[3], "3": all[3],
		} {
			equal(t, "after the end, after "+index, resume(index).wait().Body(), want)
		}
		ended := resume("4").wait()
		equal(t, "after everything", ended.Status(), http.StatusNoContent)
		equal(t, "Cache-Control", ended.Got().Get("Cache-Control"), "no-store")
		equal(t, "calls", s.calls.Load(), 1)
		equal(t, "resumed", s.count(t, `resumes_total{result="resumed"}`), 7)
		equal(t, "ended", s.count(t, `resumes_total{result="ended"}`), 1)
	})
}

// What cannot be resumed or followed is refused before anything is committed.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, threeDeltas, func(s *site) { s.spec.Access = fanout.Access{Scope: "here", Owner: "me"} })
		first := s.ask(t, streams).wait()
		id := first.id()
		me := s.spec.Access
		for name, tc := range map[string]struct {
			as       fanout.Access
			eventID  string
			status   int
			code     string
			followed string
		}{
			"no event id":                {me, "x", 400, "bad_cursor", "x"},
			"the future":                 {me, id + ":5", 400, "bad_cursor", id},
			"below the start":            {me, id + ":-1", 400, "bad_cursor", id},
			"an unknown response":        {me, strings.Repeat("0", 22) + ":1", 404, "unknown_response", ""},
			"somebody else's":            {fanout.Access{Scope: "here", Owner: "you"}, id + ":1", 404, "unknown_response", id},
			"another scope's":            {fanout.Access{Scope: "there", Owner: "me"}, id + ":1", 404, "unknown_response", id},
			"another response's cursor ": {me, strings.Repeat("0", 22) + ":1", 400, "bad_cursor", id},
		} {
			if tc.followed == "" || tc.as != me || tc.followed == id && strings.HasPrefix(tc.eventID, id) || tc.eventID == "x" {
				x := s.request(t, "").serve(func(q *relay.Request) error { return s.Resume(q, tc.as, tc.eventID) }).wait()
				x.wantStatus(t, tc.status, tc.code)
			}
			if tc.followed == id {
				x := s.request(t, "").serve(func(q *relay.Request) error { return s.Follow(q, tc.as, id, tc.eventID) }).wait()
				x.wantStatus(t, tc.status, tc.code)
			}
			_ = name
		}
		time.Sleep(15 * time.Minute) // it is no longer kept, but remembered
		x := s.request(t, "").serve(func(q *relay.Request) error { return s.Resume(q, me, id+":1") }).wait()
		x.wantStatus(t, http.StatusGone, "expired_response")
		x = s.request(t, "").serve(func(q *relay.Request) error { return s.Snapshot(q, me, id) }).wait()
		x.wantStatus(t, http.StatusGone, "expired_response")
		time.Sleep(15 * time.Minute)
		x = s.request(t, "").serve(func(q *relay.Request) error { return s.Follow(q, me, id, "") }).wait()
		x.wantStatus(t, http.StatusNotFound, "unknown_response")
	})
}

// The response goes on when its client leaves, for as long as a client may come
// back; the upstream of one that no client reads is cancelled after its grace.
func TestGrace(t *testing.T) {
	t.Parallel()
	t.Run("somebody comes back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(enginetest.Delta("a"), 50*time.Second, enginetest.Delta("b"), enginetest.Stop))
			x := s.ask(t, streams)
			time.Sleep(time.Second)
			x.leave()
			x.wait()
			equal(t, "aborted", x.aborted, true)
			time.Sleep(29 * time.Second)
			y := s.ask(t, "", "Last-Event-ID", x.id()+":1").wait()
			equal(t, "the rest", y.Body(), ping+y.frame(2, "b")+y.stopped(3))
			x.wantOutcome(t, "done")
		})
	})
	t.Run("nobody does", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(enginetest.Delta("a"), never))
			x := s.ask(t, streams)
			time.Sleep(time.Second)
			x.leave()
			x.wait()
			time.Sleep(30*time.Second - time.Millisecond)
			equal(t, "streams before the end of the grace", s.count(t, "active_streams"), 1)
			time.Sleep(time.Second)
			equal(t, "streams after it", s.count(t, "active_streams"), 0)
			x.wantOutcome(t, "client_gone")
			y := s.ask(t, "", "Last-Event-ID", x.id()+":1").wait()
			equal(t, "the rest", y.Body(), y.idLine(2)+"event: done\ndata: {\"finish_reason\":\"cancelled\"}\n\n")
		})
	})
}

// A request with the key of another one gets its response, from the start, once
// and in the dialect of the first, and has its heartbeats and its record.
func TestSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, script(20*time.Second, ": wait\n\n", 20*time.Second, enginetest.Delta("a"), time.Second, enginetest.Stop))
		x := s.ask(t, unsaid, "Idempotency-Key", "k")
		time.Sleep(time.Second)
		running := s.ask(t, unsaid, "Idempotency-Key", "k").wait()
		x.wait()
		// neither says that it asks for a stream: heartbeats begin when it is one
		equal(t, "the first", x.Body(), ping+x.frame(1, "a")+x.stopped(2))
		equal(t, "the second", running.Body(), x.Body())
		kept := s.ask(t, unsaid, "Idempotency-Key", "k").wait()
		equal(t, "later", kept.Body(), x.frame(1, "a")+x.stopped(2))
		s.ask(t, `{"other":1}`, "Idempotency-Key", "k").wait().wantStatus(t, http.StatusUnprocessableEntity, "idempotency_mismatch")
		equal(t, "calls", s.calls.Load(), 1)
		other := s.ask(t, unsaid, "Idempotency-Key", "other").wait()
		equal(t, "another response", other.id() != x.id(), true)
		equal(t, "calls", s.calls.Load(), 2)
	})
}

// A response that was none, or has failed before any output, frees its key; those
// that wait for it make the call themselves, one after the other.
func TestWhatFreesAKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails enginetest.Handler
		body  string // that the first of them gets; a part of it
	}{
		"a JSON answer": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			return enginetest.Say(w, `{"a":1}`)
		}, `{"a":1}`},
		"an error of the next handler": {func(http.ResponseWriter, *http.Request) error { return errors.New("no") }, ""},
		"a failure before any output":  {enginetest.Streams(), `"code":"upstream_truncated"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s *site
				s = newSite(t, resumable, func(w http.ResponseWriter, r *http.Request) error {
					first := s.calls.Load() == 1
					enginetest.Pause(r, time.Second)
					if first {
						return tc.fails(w, r)
					}
					return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
				})
				x := s.ask(t, unsaid, "Idempotency-Key", "k")
				synctest.Wait()
				y := s.ask(t, unsaid, "Idempotency-Key", "k")
				synctest.Wait()
				z := s.ask(t, unsaid, "Idempotency-Key", "k")
				x.wait()
				contains(t, x.Body(), tc.body)
				if name == "a failure before any output" {
					// they followed a stream, and are told as the first one
					contains(t, y.wait().Body(), tc.body)
					contains(t, z.wait().Body(), tc.body)
					y = s.ask(t, unsaid, "Idempotency-Key", "k")
					z = s.ask(t, unsaid, "Idempotency-Key", "k")
				}
				equal(t, "the second", y.wait().Body(), y.frame(1, "a")+y.stopped(2))
				equal(t, "the third", z.wait().Body(), y.Body())
				equal(t, "calls", s.calls.Load(), 2)
			})
		})
	}
}

// Where a heartbeat has told a duplicate that there is a stream, it is told in a
// frame that there is none.
func TestDuplicateOfWhatIsNoStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, func(w http.ResponseWriter, r *http.Request) error {
			enginetest.Pause(r, 20*time.Second)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			return enginetest.Say(w, `{"error":{"message":"slow down"}}`)
		})
		x := s.ask(t, streams, "Idempotency-Key", "k")
		synctest.Wait()
		y := s.ask(t, streams, "Idempotency-Key", "k")
		x.wait().wantError(t, "upstream_error")
		y.wait().wantError(t, "upstream_error")
		contains(t, y.Body(), ping)
		equal(t, "calls", s.calls.Load(), 1)
	})
}

// While a request waits for a place, a duplicate waits with it: it takes over
// when the first client leaves, and is turned away with it.
func TestDuplicateOfWhatWaits(t *testing.T) {
	t.Parallel()
	full := &deliver.RefusalError{Answer: &event.Error{Code: event.CodeQueueTimeout, Status: 429, Message: "m"}, RetryAfter: time.Second}
	t.Run("the first leaves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(enginetest.Delta("a"), enginetest.Stop))
			s.admit = func(ctx context.Context) (func(), error) {
				select {
				case <-time.After(20 * time.Second):
					return func() {}, nil
				case <-ctx.Done():
					return nil, errors.New("left the queue")
				}
			}
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			y := s.ask(t, streams, "Idempotency-Key", "k")
			time.Sleep(time.Second)
			x.leave()
			x.wait()
			y.wait()
			equal(t, "the second", y.Body(), y.frame(1, "a")+y.stopped(2))
			equal(t, "took", y.took, 21*time.Second)
			equal(t, "heartbeats while it waits", y.Heartbeats(), 0)
			equal(t, "calls", s.calls.Load(), 1)
		})
	})
	t.Run("they are turned away", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, nil)
			s.admit = func(context.Context) (func(), error) {
				time.Sleep(5 * time.Second)
				return nil, full
			}
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			y := s.ask(t, streams, "Idempotency-Key", "k")
			x.wait().wantStatus(t, http.StatusTooManyRequests, "queue_timeout")
			y.wait().wantStatus(t, http.StatusTooManyRequests, "queue_timeout")
			equal(t, "Retry-After", x.Got().Get("Retry-After")+y.Got().Get("Retry-After"), "11")
			equal(t, "counted", s.count(t, `rejected_total{reason="queue_timeout"}`), 2)
			equal(t, "calls", s.calls.Load(), 0)
		})
	})
}

// Followers have of the first client's header only what is of the response.
func TestHeaderOfFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Set-Cookie", "secret")
			w.Header().Set("X-Request-Id", "r")
			return script(enginetest.Delta("a"), enginetest.Stop)(w, r)
		})
		x := s.request(t, streams, "Idempotency-Key", "k")
		x.Client.Header().Set("X-Cors", "asker")
		x.send().wait()
		equal(t, "the first", x.Got().Get("Set-Cookie")+x.Got().Get("X-Request-Id")+x.Got().Get("X-Cors"), "secretrasker")
		for _, field := range []string{"Idempotency-Key", "Last-Event-ID"} {
			y := s.ask(t, streams, field, map[string]string{"Idempotency-Key": "k", "Last-Event-ID": x.id() + ":0"}[field]).wait()
			equal(t, field, y.Got().Get("Set-Cookie")+y.Got().Get("X-Request-Id")+y.Got().Get("X-Cors"), "r")
		}
	})
}

// What the access log has of a client is complete when its request ends, for
// each client that has read a response to its end.
func TestRecordIsCompleteAtTheEnd(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\n"
	finish, _, _ := strings.Cut(enginetest.Stop, enginetest.Finished)
	inEveryWay(t, func(t *testing.T, w way) {
		for range 20 { // it was a race
			s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
				err := script(time.Second, enginetest.Delta("a"), finish+usage+enginetest.Finished)(w, r)
				enginetest.Pause(r, 100*time.Millisecond) // it takes a moment to close the body
				return err
			})
			x := s.request(t, streams, "Idempotency-Key", "k")
			x.send()
			if w != resumable {
				wantComplete(t, x.wait().records[0])
				continue
			}
			synctest.Wait()
			y := s.ask(t, streams, "Idempotency-Key", "k")
			wantComplete(t, x.wait().records[0])
			y.wait()
			equal(t, "followed", len(y.followed), 1)
			wantComplete(t, y.followed[0].Record)
			time.Sleep(time.Second) // the backend closes the body
			equal(t, "bytes", y.followed[0].Sent(), int64(len(y.Body())))
		}
	})
}

// The token counts of a response that has failed are recorded, as far as the
// provider has sent them: they are paid for.
func TestUsageOfAFailedResponse(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\n"
	inEveryWay(t, func(t *testing.T, w way) {
		x := newSite(t, w, script(enginetest.Delta("a"), usage)).ask(t, streams).wait()
		x.wantOutcome(t, "upstream_truncated")
		if counts := x.records[0].Snapshot().Usage; counts == nil || counts.Input != 3 || counts.Output != 2 {
			t.Errorf("usage %+v", counts)
		}
	})
}

func wantComplete(t *testing.T, record *observe.Record) {
	t.Helper()
	s := record.Snapshot()
	if s.Outcome != event.OutcomeDone || s.Usage == nil || s.Usage.Output != 2 || s.Model != "m" {
		t.Errorf("the record has %+v", s)
	}
}

// cancelled cancels a response and returns its status.
func cancelled(t *testing.T, s *site, response *fanout.Response) fanout.Status {
	t.Helper()
	status, err := s.Cancel(t.Context(), response.ID(), response.Access)
	if err != nil {
		t.Error(err)
	}
	return status
}

// Cancelling ends every client of a response and its upstream at once, with a
// frame, or a status where nothing was committed, also while it waits for a
// place; it is idempotent.
func TestCancel(t *testing.T) {
	t.Parallel()
	find := func(t *testing.T, s *site) *fanout.Response {
		t.Helper()
		found := s.Registry.FindKey("k")
		if len(found) != 1 {
			t.Fatalf("%d responses", len(found))
		}
		return found[0]
	}
	t.Run("in the stream", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(enginetest.Delta("a"), never))
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			y := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			response := find(t, s)
			equal(t, "status", cancelled(t, s, response), fanout.Cancelled)
			equal(t, "status", cancelled(t, s, response), fanout.Cancelled)
			want := x.frame(1, "a") + x.idLine(2) + "event: done\ndata: {\"finish_reason\":\"cancelled\"}\n\n"
			equal(t, "the first", x.wait().Body(), want)
			equal(t, "the second", y.wait().Body(), want)
			equal(t, "took", x.took, 0)
			synctest.Wait()
			equal(t, "streams that are left", s.count(t, "active_streams"), 0)
			x.wantOutcome(t, "cancelled")
		})
	})
	t.Run("before the commit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(never))
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			cancelled(t, s, find(t, s))
			x.wait().wantStatus(t, event.StatusClientClosedRequest, "cancelled")
		})
	})
	t.Run("while it waits for a place", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, nil)
			s.admit = func(ctx context.Context) (func(), error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			cancelled(t, s, find(t, s))
			x.wait().wantStatus(t, event.StatusClientClosedRequest, "cancelled")
			equal(t, "calls", s.calls.Load(), 0)
		})
	})
	t.Run("after the end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, script(enginetest.Delta("a"), enginetest.Stop))
			s.ask(t, streams, "Idempotency-Key", "k").wait()
			equal(t, "status", cancelled(t, s, find(t, s)), fanout.Completed)
		})
	})
	t.Run("a backend that does not react", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, resumable, func(w http.ResponseWriter, r *http.Request) error {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = enginetest.Streams(enginetest.Delta("a"))(w, r)
				time.Sleep(time.Hour)
				return enginetest.Say(w, enginetest.Delta("b"), enginetest.Stop)
			})
			x := s.ask(t, streams, "Idempotency-Key", "k")
			synctest.Wait()
			cancelled(t, s, find(t, s))
			equal(t, "took", x.wait().took, 0)
			time.Sleep(2 * time.Hour)
			equal(t, "streams that are left", s.count(t, "active_streams"), 0)
			equal(t, "body", strings.Contains(x.Body(), `"b"`), false)
		})
	})
}

// A log that is full ends the response.
func TestMaxSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, resumable, script(enginetest.Delta("a"), enginetest.Delta(strings.Repeat("x", 2<<10)), never), func(s *site) { s.spec.MaxSize = 1 << 10 })
		x := s.ask(t, streams).wait()
		x.wantError(t, "response_too_large")
		x.wantOutcome(t, "response_too_large")
		synctest.Wait()
		equal(t, "streams that are left", s.count(t, "active_streams"), 0)
	})
}
