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

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

// admits counts places, and when the first one was taken.
type places struct {
	began       time.Time
	taken, left int
	at          time.Duration
}

func limited(p *places) func(*site) {
	return func(s *site) {
		p.began = time.Now()
		s.admit = func(context.Context) (func(), error) {
			p.taken++
			p.at = time.Since(p.began)
			return func() { p.left++ }, nil
		}
	}
}

// upload makes the body of a request one that its client sends in pieces.
func (x *exchange) upload() io.WriteCloser {
	client, server := x.Client.Upload()
	x.Request.Body, x.ContentLength = server, -1
	return client
}

// bodyOf is a request body of a size that asks for a stream at its end.
func bodyOf(size int) string {
	const head, tail = `{"p":"`, `","stream":true}`
	return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
}

// echoes is a backend that reads the request and answers with how much it was.
func echoes(got *int) enginetest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		n, err := io.Copy(io.Discard, r.Body)
		*got = int(n)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
	}
}

// A body of any size arrives whole, and a place is taken only once it is there,
// or the first MiB of it; what was held is given back.
func TestBodies(t *testing.T) {
	t.Parallel()
	for _, w := range []way{attached, tied, resumable} {
		for name, size := range map[string]int{"small": 50, "large": 900 << 10, "larger than what is held": 3 << 20} {
			if w == resumable && size > 1<<20 {
				continue // refused
			}
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var p places
					got := 0
					s := newSite(t, w, echoes(&got), limited(&p))
					x := s.request(t, "")
					client := x.upload()
					x.send()
					body := bodyOf(size)
					for _, piece := range []string{body[:size/2], body[size/2:]} {
						time.Sleep(10 * time.Second)
						_, _ = io.WriteString(client, piece)
					}
					_ = client.Close()
					x.wait()
					equal(t, "bytes", got, size)
					equal(t, "places", p.taken, 1)
					at := 20 * time.Second
					if size > 2<<20 {
						at = 10 * time.Second
					}
					equal(t, "the place was taken after", p.at, at)
					equal(t, "body", strings.HasSuffix(x.Client.Body(), x.stopped(2)), true)
					synctest.Wait()
					equal(t, "places given back", p.left, 1)
					memory := s.Memory.(*budget)
					equal(t, "held in the end", memory.used.Load(), 0)
					if most := memory.most.Load(); most > 1<<20+64<<10 {
						t.Errorf("%d bytes were held", most)
					}
				})
			})
		}
	}
}

// Where places are not limited, nothing of a body is held: it streams to the
// backend as it comes.
func TestBodyStreamsWithoutALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first string
		s := newSite(t, attached, func(w http.ResponseWriter, r *http.Request) error {
			b := make([]byte, 100)
			n, _ := r.Body.Read(b)
			first = string(b[:n])
			return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
		})
		x := s.request(t, "")
		client := x.upload()
		x.send()
		_, _ = io.WriteString(client, `{"model":`)
		x.wait()
		equal(t, "the first piece", first, `{"model":`)
		equal(t, "held", s.Memory.(*budget).most.Load(), 0)
		// the backend has answered before it had the whole prompt
		equal(t, "full duplex", x.FullDuplex(), true)
		equal(t, "Connection", x.Got().Get("Connection"), "close")
		equal(t, "body", x.Client.Body(), x.frame(1, "a")+x.stopped(2))
		x.wantOutcome(t, "done")
	})
}

// A stream begins while the upload is still running, and what the request asks
// for is heeded once it is there.
func TestUploadDuringTheAnswer(t *testing.T) {
	t.Parallel()
	for _, w := range []way{attached, tied} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
					sent := make(chan struct{})
					go func() { // as a transport sends it
						defer close(sent)
						_, _ = io.Copy(io.Discard, r.Body)
					}()
					enginetest.Pause(r, time.Second)
					err := enginetest.Streams(enginetest.Delta("a"))(w, r)
					<-sent
					return errors.Join(err, enginetest.Say(w, enginetest.Stop))
				})
				x := s.request(t, "")
				client := x.upload()
				x.send()
				body := bodyOf(100)
				for i := range 20 {
					_, _ = io.WriteString(client, body[5*i:5*i+5])
					time.Sleep(200 * time.Millisecond)
				}
				synctest.Wait()
				equal(t, "body so far", x.Client.Body(), x.frame(1, "a"))
				_ = client.Close()
				equal(t, "body", x.wait().Client.Body(), x.frame(1, "a")+x.stopped(2))
				equal(t, "full duplex", x.FullDuplex(), true)
			})
		})
	}
}

// A transport may still read the body when the response is over.
func TestUploadThatOutlivesTheAnswer(t *testing.T) {
	t.Parallel()
	for _, w := range []way{attached, tied} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := make(chan struct{})
				s := newSite(t, w, func(w http.ResponseWriter, r *http.Request) error {
					go func() {
						defer close(sent)
						_, _ = io.Copy(io.Discard, r.Body)
					}()
					enginetest.Pause(r, time.Second) // the transport is in a read by then
					return enginetest.Streams(enginetest.Delta("a"), enginetest.Stop)(w, r)
				})
				x := s.request(t, "", "Content-Encoding", "gzip")
				client := x.upload()
				x.send()
				_, _ = client.Write([]byte("\x1f\x8b\x08\x00"))
				time.Sleep(time.Second)
				_, _ = client.Write(make([]byte, 10)) // at the moment at which the response ends
				x.wait()
				_ = client.Close()
				<-sent
				equal(t, "body", x.Client.Body(), x.frame(1, "a")+x.stopped(2))
			})
		})
	}
}

// A body must come in time: at once a bit of it, and the more of it there is, the
// longer it may take. Neither silence nor dripping holds anything.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	for _, w := range []way{attached, tied, resumable} {
		for name, tc := range map[string]struct {
			limited bool
			piece   int
			pause   time.Duration
			pieces  int
			status  int
			took    time.Duration
		}{
			"silence":                 {limited: true, piece: 10, pause: never, pieces: 2, status: 408, took: 30 * time.Second},
			"dripping":                {limited: true, piece: 10, pause: time.Second, pieces: 1000, status: 408, took: 30 * time.Second},
			"fast enough":             {limited: true, piece: 20 << 10, pause: time.Second, pieces: 40, status: 200, took: 40 * time.Second},
			"too slow in the long":    {limited: true, piece: 10 << 10, pause: time.Second, pieces: 90, status: 408},
			"silence, without places": {piece: 10, pause: never, pieces: 2, status: 408, took: 30 * time.Second},
			"dripping without places": {piece: 10, pause: time.Second, pieces: 1000, status: 408, took: 30 * time.Second},
		} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var p places
					got := 0
					s := newSite(t, w, echoes(&got))
					if tc.limited {
						limited(&p)(s)
					}
					x := s.request(t, "")
					client := x.upload()
					x.send()
					go func() {
						defer func() { _ = client.Close() }()
						for range tc.pieces {
							if _, err := client.Write(make([]byte, tc.piece)); err != nil {
								return
							}
							select {
							case <-time.After(tc.pause):
							case <-x.done:
								return
							}
						}
					}()
					x.wait()
					_ = x.Request.Body.Close() // as the server does
					equal(t, "status", x.Status(), tc.status)
					if tc.took != 0 {
						equal(t, "took", x.took, tc.took)
					}
					if tc.status == http.StatusRequestTimeout {
						contains(t, x.Client.Body(), `"code":"request_timeout"`)
						equal(t, "places", p.taken, 0)
					}
					synctest.Wait()
					equal(t, "held in the end", s.Memory.(*budget).used.Load(), 0)
					equal(t, "streams that are left", s.count(t, "active_streams"), 0)
				})
			})
		}
	}
}

// Where there is no room for a body its request is turned away, and nothing of
// it stays.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	for _, w := range []way{attached, tied, resumable} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p places
				s := newSite(t, w, nil, limited(&p))
				memory := s.Memory.(*budget)
				x := s.request(t, "")
				client := x.upload()
				x.send()
				_, _ = io.WriteString(client, "{")
				memory.refuses.Store(true)
				go func() { _, _ = io.WriteString(client, bodyOf(100)) }()
				synctest.Wait()
				_ = client.Close()
				x.wait().wantStatus(t, http.StatusServiceUnavailable, "too_many_clients")
				equal(t, "Retry-After", x.Got().Get("Retry-After"), "1")
				equal(t, "counted", s.count(t, `rejected_total{reason="too_many_clients"}`), 1)
				equal(t, "places", p.taken, 0)
				equal(t, "held in the end", memory.used.Load(), 0)
			})
		})
	}
}

// A body that is read whole is bounded, whatever length it declares; one that
// breaks off is the client's fault.
func TestReadBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		body     io.Reader
		declared int64
		want     error
		status   int
	}{
		"as large as may be":   {body: strings.NewReader(strings.Repeat("x", 100)), declared: 100},
		"empty":                {body: http.NoBody},
		"declared too large":   {body: strings.NewReader(""), declared: 101, status: 413},
		"too large":            {body: strings.NewReader(strings.Repeat("x", 101)), declared: -1, status: 413},
		"breaks off":           {body: io.MultiReader(strings.NewReader("xx"), failing{broken}), declared: 100, want: relay.ErrBody},
		"breaks off, and why":  {body: failing{broken}, declared: 100, want: broken},
		"Caddy's own limit":    {body: failing{&http.MaxBytesError{Limit: 7}}, declared: -1, want: relay.ErrBody},
		"nothing was declared": {body: strings.NewReader("x"), declared: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, resumable, nil)
				x := s.request(t, "")
				x.Request.Body, x.ContentLength = io.NopCloser(tc.body), tc.declared
				body, err := s.ReadBody(x.Request, 100)
				memory := s.Memory.(*budget)
				refusal, _ := errors.AsType[*deliver.RefusalError](err)
				switch {
				case tc.status != 0:
					if refusal == nil || refusal.Answer.Status != tc.status || refusal.Answer.Code != event.CodeRequestTooLarge {
						t.Errorf("error %v", err)
					}
				case tc.want != nil:
					if !errors.Is(err, tc.want) {
						t.Errorf("error %v", err)
					}
				case err != nil:
					t.Error(err)
				default:
					equal(t, "held", memory.used.Load(), int64(len(body)))
					x.DropBody()
				}
				equal(t, "held in the end", memory.used.Load(), 0)
			})
		})
	}
}

// failing is a reader that fails.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A request that gets no place is refused, and calls nobody.
func TestNoPlace(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, w way) {
		s := newSite(t, w, nil)
		s.admit = func(context.Context) (func(), error) {
			return nil, &deliver.RefusalError{Answer: &event.Error{Code: event.CodeQueueFull, Status: 429, Message: "m"}, RetryAfter: 3 * time.Second}
		}
		x := s.ask(t, streams).wait()
		x.wantStatus(t, http.StatusTooManyRequests, "queue_full")
		equal(t, "Retry-After", x.Got().Get("Retry-After"), "3")
		equal(t, "counted", s.count(t, `rejected_total{reason="queue_full"}`), 1)
		equal(t, "records", len(x.records), 0)
		equal(t, "held", s.Memory.(*budget).used.Load(), 0)
	})
}
