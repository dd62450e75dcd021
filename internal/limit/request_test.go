package limit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

// request is one Acquire in a goroutine of its own, in a synctest bubble.
type request struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	// The fields below are set when done is closed.
	slot  *limit.Slot
	err   error
	after time.Duration
}

// start begins a request and returns when it has its outcome or waits.
func start(t *testing.T, l *limit.Limiter, key string) *request {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &request{cancel: cancel, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(r.done)
		r.slot, r.err = l.Acquire(ctx, key)
		r.after = time.Since(began)
	}()
	synctest.Wait()
	return r
}

// waits reports whether the request is in the queue.
func (r *request) waits() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// want fails the test unless the request has ended with err (nil: a slot).
func (r *request) want(t *testing.T, err error) {
	t.Helper()
	if r.waits() {
		t.Fatalf("request still waits, want outcome %v", err)
	}
	if !errors.Is(r.err, err) {
		t.Fatalf("request ended with %v, want %v", r.err, err)
	}
	if (r.slot == nil) != (err != nil) {
		t.Fatalf("slot = %v beside error %v", r.slot, r.err)
	}
}

func wantStats(t *testing.T, l *limit.Limiter, active, queued int) {
	t.Helper()
	synctest.Wait()
	a, q := l.Stats()
	if a != active || q != queued {
		t.Fatalf("Stats() = %d active, %d queued, want %d and %d", a, q, active, queued)
	}
}

// mustAcquire takes a place that is known to be free.
func mustAcquire(t *testing.T, l *limit.Limiter, key string) *limit.Slot {
	t.Helper()
	slot, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return slot
}

// settled returns the indexes of the requests that no longer wait.
func settled(requests []*request) []int {
	var indexes []int
	for i, r := range requests {
		if !r.waits() {
			indexes = append(indexes, i)
		}
	}
	return indexes
}
