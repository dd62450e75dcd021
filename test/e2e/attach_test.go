package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// crowd sends the same keyed request n times at once, once the backend has the
// first, lets the backend go on, and returns the statuses and bodies that came.
func crowd(t *testing.T, c *rig.Caddy, n int, here <-chan struct{}, proceed chan<- struct{}) map[string]int {
	t.Helper()
	var mu sync.Mutex
	got := make(map[string]int)
	var wg sync.WaitGroup
	ask := func() {
		resp, err := post(`{"stream":true}`, "Idempotency-Key", "k").try(t.Context(), c)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		what := fmt.Sprint(resp.StatusCode, " ", err == nil, " ", strings.Contains(string(body), `"code":"upstream_error"`))
		if strings.Contains(string(body), `"choices"`) {
			what += " JSON"
		}
		mu.Lock()
		got[what]++
		mu.Unlock()
	}
	wg.Go(ask)
	<-here
	for range n - 1 {
		wg.Go(ask)
	}
	eventually(t, "all have attached", func() bool { return stateNow(t).Readers == n })
	close(proceed)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("somebody waits for ever")
	}
	return got
}

// A client that has attached to what turns out to have failed, or to be no stream,
// is answered like the first one.
func TestAttachedToWhatIsNoStream(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"a JSON answer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[]}`)
		}, "200 true false JSON"},
		"a dead backend": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "502 true false"},
		"an error event": {func(w http.ResponseWriter) {
			rig.EventStream(w)
			rig.Say(w, `data: {"error":{"message":"busy","type":"overloaded_error"}}`+"\n\n")
		}, "529 true true"},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 20
			here, proceed := make(chan struct{}, n), make(chan struct{})
			c, _ := keep(t, "", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				here <- struct{}{}
				<-proceed
				tc.answer(w)
			})
			equal(t, "answers", fmt.Sprint(crowd(t, c, n, here, proceed)), fmt.Sprint(map[string]int{tc.want: n}))
		})
	}
}
