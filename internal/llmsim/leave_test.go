package llmsim_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// A client that leaves, at whatever moment, ends its generation at once.
func TestLeavingCancels(t *testing.T) {
	slow := llmsim.Options{Tokens: 1000, TTFT: time.Minute, Interval: time.Second}
	for _, c := range []struct {
		name, body string
		fault      llmsim.Fault
		after      time.Duration
	}{
		{"before the headers", `{"stream":true}`, llmsim.FaultSlowHeaders, time.Second},
		{"before the first token", `{"stream":true}`, llmsim.FaultNone, time.Second},
		{"in the stream", `{"stream":true}`, llmsim.FaultNone, 90 * time.Second},
		{"while it hangs", `{"stream":true}`, llmsim.FaultHang, time.Hour},
		{"before a whole answer", `{"stream":false}`, llmsim.FaultNone, 90 * time.Second},
		{"while a whole answer hangs", `{"stream":false}`, llmsim.FaultHang, time.Hour},
	} {
		for _, d := range dialects {
			t.Run(c.name+"/"+d.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &llmsim.Backend{Options: slow}
					b.Options.Fault, b.Options.FaultAt = c.fault, 2
					client := serve(t, b)
					ctx, leave := context.WithTimeout(t.Context(), c.after)
					defer leave()
					resp, err := client.Do(request(ctx, t, d.path, c.body, d.header()...))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if err == nil {
						t.Error("the response came to its end")
					}
					synctest.Wait()
					if got, want := b.Stats(), (llmsim.Stats{Started: 1, Cancelled: 1}); got != want {
						t.Errorf("%+v, want %+v", got, want)
					}
				})
			})
		}
	}
}

func TestStatsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &llmsim.Backend{Options: llmsim.Options{Tokens: 2, Interval: time.Second}}
		client := serve(t, b)
		resp, err := client.Do(request(t.Context(), t, "/api/chat", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		synctest.Wait()
		if got, want := b.Stats(), (llmsim.Stats{Started: 1, Active: 1}); got != want {
			t.Errorf("running: %+v, want %+v", got, want)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		// No waiting: a client that has read the end finds it counted.
		if got, want := b.Stats(), (llmsim.Stats{Started: 1, Finished: 1}); got != want {
			t.Errorf("ended: %+v, want %+v", got, want)
		}
	})
}

func TestFailedWriteCancels(t *testing.T) {
	for _, body := range []string{`{"stream":true}`, `{"stream":false}`} {
		b := &llmsim.Backend{Options: llmsim.Options{Tokens: 5}}
		w := newClockWriter()
		w.fail = true
		b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/chat", strings.NewReader(body)))
		if got, want := b.Stats(), (llmsim.Stats{Started: 1, Cancelled: 1}); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
}
