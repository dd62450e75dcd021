package fanout_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// The times of the tests' responses.
const (
	keep  = 10 * time.Minute
	grace = 30 * time.Second
)

var alice = fanout.Access{Scope: "example.com", Owner: "alice"}

// spec returns a response of alice's that is not cancelled.
func spec() fanout.Spec {
	return fanout.Spec{Access: alice, Keep: keep, Grace: grace, Cancel: func(error) {}}
}

// begin starts a response that does not exist yet.
func begin(tb testing.TB, reg *fanout.Registry, s fanout.Spec) *fanout.Response {
	tb.Helper()
	r, found, err := reg.Begin(fanout.NewID(), s)
	if err != nil || found {
		tb.Fatalf("begin: found %v, %v", found, err)
	}
	return r
}

func follow(tb testing.TB, r *fanout.Response, index int) *fanout.Cursor {
	tb.Helper()
	c, err := r.Follow(index)
	if err != nil {
		tb.Fatalf("follow from %d: %v", index, err)
	}
	return c
}

// wantFind checks what is found under the id of a response.
func wantFind(tb testing.TB, reg *fanout.Registry, r *fanout.Response, want error) {
	tb.Helper()
	found, err := reg.Find(r.ID(), r.Access)
	if !errors.Is(err, want) || (want == nil && found != r) {
		tb.Fatalf("find: %p %v, want %p %v", found, err, r, want)
	}
}

// wantNothing checks that the registry holds nothing more.
func wantNothing(tb testing.TB, reg *fanout.Registry) {
	tb.Helper()
	if got := reg.Holdings(); got != (fanout.Holdings{}) {
		tb.Fatalf("the registry holds %+v", got)
	}
}

func TestFindNeedsTheOwnerAndTheScope(t *testing.T) {
	owned, open := spec(), spec()
	open.Owner = ""
	reg := fanout.NewRegistry()
	for name, s := range map[string]fanout.Spec{"owned": owned, "open": open} {
		r := begin(t, reg, s)
		for _, test := range []struct {
			as   fanout.Access
			want error
		}{
			{alice, nil},
			{fanout.Access{Scope: "example.com", Owner: "bob"}, fanout.ErrUnknown},
			{fanout.Access{Scope: "example.com"}, fanout.ErrUnknown},
			{fanout.Access{Scope: "example.org", Owner: "alice"}, fanout.ErrUnknown},
			{fanout.Access{Owner: "alice"}, fanout.ErrUnknown},
		} {
			want := test.want
			if s.Owner == "" && test.as.Scope == "example.com" {
				want = nil // knowing the id is enough
			}
			if _, err := reg.Find(r.ID(), test.as); !errors.Is(err, want) {
				t.Errorf("%s, found as %+v: %v, want %v", name, test.as, err, want)
			}
		}
	}
	if _, err := reg.Find(fanout.NewID(), alice); !errors.Is(err, fanout.ErrUnknown) {
		t.Errorf("an id that never was: %v", err)
	}
}

// keyed returns a response with an idempotency key.
func keyed(key, request, body string) fanout.Spec {
	s := spec()
	s.Call = fanout.Call{Key: key, Request: request, Body: body}
	return s
}

func TestTheSameCallIsMadeOnce(t *testing.T) {
	reg := fanout.NewRegistry()
	first := begin(t, reg, keyed("k", "POST /v1", "hi"))
	again := func(s fanout.Spec) (*fanout.Response, bool, error) { return reg.Begin(fanout.NewID(), s) }

	for _, state := range []string{"running", "kept"} {
		if r, found, err := again(keyed("k", "POST /v1", "hi")); r != first || !found || err != nil {
			t.Fatalf("%s: %p %v %v, want %p", state, r, found, err, first)
		}
		if r, _, err := again(keyed("k", "POST /v1", "bye")); r != nil || !errors.Is(err, fanout.ErrMismatch) {
			t.Fatalf("%s, another body: %v %v, want ErrMismatch", state, r, err)
		}
		for name, s := range map[string]fanout.Spec{
			"another key":     keyed("k2 "+state, "POST /v1", "bye"),
			"another request": keyed("k", "POST /v2 "+state, "bye"),
			"no key":          keyed("", "POST /v1", "hi"),
		} {
			if r, found, err := again(s); r == first || found || err != nil {
				t.Fatalf("%s, %s: %v %v", state, name, found, err)
			}
		}
		add(t, first, "x")
		first.End(done)
	}
}

func TestACallIsFreedByAFailureBeforeOutput(t *testing.T) {
	tests := map[string]struct {
		output bool
		end    func(r *fanout.Response)
		freed  bool
	}{
		"failed without output":    {false, func(r *fanout.Response) { r.End(failed) }, true},
		"failed with output":       {true, func(r *fanout.Response) { r.End(failed) }, false},
		"done without output":      {false, func(r *fanout.Response) { r.End(done) }, false},
		"cancelled without output": {false, func(r *fanout.Response) { r.End(cancelled) }, false},
		"discarded":                {false, func(r *fanout.Response) { r.Discard(failed) }, true},
		"failed, then discarded":   {true, func(r *fanout.Response) { r.End(failed); r.Discard(failed) }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reg := fanout.NewRegistry()
			r := begin(t, reg, keyed("k", "POST /", "hi"))
			if test.output {
				add(t, r, "x")
			}
			test.end(r)
			second, found, err := reg.Begin(fanout.NewID(), keyed("k", "POST /", "other"))
			switch {
			case test.freed && (found || err != nil || second == r):
				t.Fatalf("the call is not free: %v %v", found, err)
			case !test.freed && !errors.Is(err, fanout.ErrMismatch):
				t.Fatalf("the call is free: %v", err)
			}
			// whatever becomes of the first, it must not take the second's key
			r.End(failed)
			r.Discard(failed)
			if test.freed {
				if again, found, _ := reg.Begin(fanout.NewID(), keyed("k", "POST /", "other")); !found || again != second {
					t.Fatal("the second call lost its key")
				}
			}
		})
	}
}

func TestFindKeyFindsNothingThatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := fanout.NewRegistry()
		begin(t, reg, keyed("k", "POST /", "")).End(done)
		after(keep)
		if got := reg.FindKey("k"); len(got) != 0 {
			t.Fatalf("found %d", len(got))
		}
	})
}

func TestFindKeyFindsWhatRunsAndWhatIsKept(t *testing.T) {
	reg := fanout.NewRegistry()
	a := begin(t, reg, keyed("k", "POST /a", ""))
	b := begin(t, reg, keyed("k", "POST /b", ""))
	begin(t, reg, keyed("other", "POST /a", ""))
	begin(t, reg, keyed("", "POST /a", ""))
	b.End(done)
	found := make(map[*fanout.Response]bool)
	for _, r := range reg.FindKey("k") {
		found[r] = true
	}
	if len(found) != 2 || !found[a] || !found[b] {
		t.Fatalf("found %d", len(found))
	}
	if got := reg.FindKey(""); len(got) != 0 {
		t.Fatalf("%d responses have no key, and all are found by it", len(got))
	}
	b.Discard(failed)
	if got := reg.FindKey("k"); len(got) != 1 || got[0] != a {
		t.Fatalf("found %d after one was discarded", len(got))
	}
}

func TestLenCountsWhatRunsAndWhatIsKept(t *testing.T) {
	reg := fanout.NewRegistry()
	want := func(wantActive, wantDone int) {
		t.Helper()
		if active, done := reg.Len(); active != wantActive || done != wantDone {
			t.Fatalf("%d running and %d kept, want %d and %d", active, done, wantActive, wantDone)
		}
	}
	a, b := begin(t, reg, spec()), begin(t, reg, spec())
	want(2, 0)
	a.End(done)
	want(1, 1)
	b.Discard(failed)
	want(0, 1)
	if err := reg.Destruct(); err != nil {
		t.Fatal(err)
	}
	want(0, 0)
}

func TestStatusOfTerminalEvents(t *testing.T) {
	interrupted := *failed
	e := *failed.Err
	e.Code = "interrupted"
	interrupted.Err = &e
	if got := fanout.StatusOf(nil); got != fanout.InProgress {
		t.Errorf("running: %s", got)
	}
	if got := fanout.StatusOf(done); got != fanout.Completed {
		t.Errorf("done: %s", got)
	}
	if got := fanout.StatusOf(cancelled); got != fanout.Cancelled {
		t.Errorf("cancelled: %s", got)
	}
	if got := fanout.StatusOf(failed); got != fanout.Broken {
		t.Errorf("failed: %s", got)
	}
	if got := fanout.StatusOf(&interrupted); got != fanout.Interrupted {
		t.Errorf("interrupted: %s", got)
	}
}
