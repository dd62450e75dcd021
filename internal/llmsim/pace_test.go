package llmsim_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// clockWriter notes when it was flushed, and when it was written to last. A
// client behind it may be slow.
type clockWriter struct {
	start   time.Time
	header  http.Header
	body    strings.Builder
	flushes []time.Duration
	last    time.Duration
	slow    map[int]time.Duration // how long the write after that many flushes takes
	fail    bool
}

func newClockWriter() *clockWriter {
	return &clockWriter{start: time.Now(), header: make(http.Header)}
}

func (w *clockWriter) Header() http.Header { return w.header }
func (w *clockWriter) WriteHeader(int)     {}

func (w *clockWriter) Write(p []byte) (int, error) {
	if w.fail {
		return 0, errors.New("the client has left")
	}
	time.Sleep(w.slow[len(w.flushes)])
	w.last = time.Since(w.start)
	return w.body.Write(p)
}

func (w *clockWriter) FlushError() error {
	w.flushes = append(w.flushes, time.Since(w.start))
	return nil
}

func ms(times ...int) []time.Duration {
	durations := make([]time.Duration, 0, len(times))
	for _, t := range times {
		durations = append(durations, time.Duration(t)*time.Millisecond)
	}
	return durations
}

var paced = llmsim.Options{Tokens: 3, Reasoning: 1, TTFT: 200 * time.Millisecond, Interval: 40 * time.Millisecond}

func TestPace(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &llmsim.Backend{Options: paced}
				w := newClockWriter()
				b.ServeHTTP(w, received(http.MethodPost, d.path, d.streaming, d.header()...))
				// The headers, four tokens, and the finish with the last of them.
				want := ms(0, 200, 240, 280, 320, 320)
				if d.headersWait() {
					want = want[1:]
				}
				if !slices.Equal(w.flushes, want) {
					t.Errorf("flushed at %v, want %v", w.flushes, want)
				}

				w = newClockWriter()
				b.ServeHTTP(w, received(http.MethodPost, d.path, d.whole, d.header()...))
				if want := ms(320)[0]; w.last != want {
					t.Errorf("the whole answer came at %v, want %v", w.last, want)
				}
			})
		})
	}
}

func TestSlowHeaders(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &llmsim.Backend{Options: paced}
				b.Options.Fault = llmsim.FaultSlowHeaders
				w := newClockWriter()
				b.ServeHTTP(w, received(http.MethodPost, d.path, d.streaming, d.header()...))
				if want := ms(200, 240, 280, 320, 320); !slices.Equal(w.flushes, want) {
					t.Errorf("flushed at %v, want %v", w.flushes, want)
				}
				if got := d.readStream(t, w.body.String()); got.text != llmsim.Text(3) || !got.ended {
					t.Errorf("the stream is not whole: %+v", got)
				}
			})
		})
	}
}

// A client that blocks the backend holds it up, and gets no burst afterwards.
func TestBlockedClientIsNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &llmsim.Backend{Options: llmsim.Options{Tokens: 4, Interval: 40 * time.Millisecond}}
		w := newClockWriter()
		w.slow = map[int]time.Duration{1: time.Second}
		b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/chat", nil))
		if want := ms(0, 1040, 1040, 1080, 1080); !slices.Equal(w.flushes, want) {
			t.Errorf("flushed at %v, want %v", w.flushes, want)
		}
	})
}

// A client that is late by less than an interval does not slow the pace.
func TestPaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &llmsim.Backend{Options: llmsim.Options{Tokens: 4, Interval: 40 * time.Millisecond}}
		w := newClockWriter()
		w.slow = map[int]time.Duration{1: 30 * time.Millisecond}
		b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/chat", nil))
		if want := ms(0, 70, 80, 120, 120); !slices.Equal(w.flushes, want) {
			t.Errorf("flushed at %v, want %v", w.flushes, want)
		}
	})
}
