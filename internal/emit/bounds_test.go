package emit_test

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// whole are the dialects that tell a tool call with a beginning and an end.
var whole = map[string]func() emit.Encoder{
	emit.DialectAnthropic: func() emit.Encoder { return emit.NewAnthropic(responseID, "m") },
	emit.DialectAISDK:     func() emit.Encoder { return emit.NewAISDK(responseID) },
}

// What must be held for one client is at most 4 MiB (CWE-770).
func TestWhatIsHeldForAClientIsBounded(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("x", 64<<10)
	for name, events := range map[string]func(i int) event.Event{
		"one long call":      func(i int) event.Event { return args(0, piece) },
		"calls in turns":     func(i int) event.Event { return args(i%2, piece) },
		"text inside a call": func(i int) event.Event { return text(piece) },
	} {
		for dialect, fresh := range whole {
			var b strings.Builder
			w := bufio.NewWriter(&b)
			enc := fresh()
			open := call(0, "a", "f", `{"`)
			second := call(1, "b", "g", `{"`)
			enc.Encode(w, 1, &open)
			enc.Encode(w, 2, &second)
			for i := range 200 { // 12.5 MiB
				ev := events(i)
				enc.Encode(w, i+3, &ev)
			}
			_ = w.Flush()
			failure := emit.Failure(enc)
			// What is streamed is not held: arguments of the open block, and
			// text outside of one.
			streams := dialect == emit.DialectAnthropic && name == "one long call" || dialect == emit.DialectAISDK && name == "text inside a call"
			if (failure == nil) != streams || failure != nil && failure.Code != event.CodeResponseTooLarge {
				t.Errorf("%s, %s: %v", dialect, name, failure)
			}
			if told := strings.Contains(b.String(), "response_too_large"); told == streams {
				t.Errorf("%s, %s: the client was told: %v", dialect, name, told)
			}
			before := b.Len()
			end := done(event.Result{})
			enc.Encode(w, 999, &end)
			_ = w.Flush()
			if wrote := b.Len() > before; wrote != streams {
				t.Errorf("%s, %s: %d bytes after the end", dialect, name, b.Len()-before)
			}
		}
	}
}

// A client that begins to read inside a tool call gets nothing of that call,
// and all that comes after it.
func TestHalfACallIsNotTold(t *testing.T) {
	t.Parallel()
	for dialect, fresh := range whole {
		got := encode(fresh(), args(0, `"x":1}`), text("T"), call(1, "b", "g", `{"y":2}`), done(event.Result{Finish: event.FinishToolCalls}))
		m := readers[dialect](t, got)
		if m.text != "T" || len(m.calls) != 1 || m.calls[0] != (toolCall{"b", "g", `{"y":2}`}) {
			t.Errorf("%s: %+v", dialect, m)
		}
	}
}

// The cost of a tool call does not depend on how many there were.
func TestManyToolCallsAreNotQuadratic(t *testing.T) {
	if testing.Short() {
		t.Skip("60,000 calls in each dialect")
	}
	cost := func(dialect string, n int, arguments string) time.Duration {
		enc, err := emit.New(dialect, emit.Options{ResponseID: responseID})
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(io.Discard)
		start := time.Now()
		for i := range n {
			ev := call(i, "", "f", arguments)
			enc.Encode(w, i+1, &ev)
		}
		for i := range n {
			ev := args(i, " ")
			enc.Encode(w, n+i+1, &ev)
		}
		end := done(event.Result{Finish: event.FinishToolCalls})
		enc.Encode(w, 2*n+1, &end)
		return time.Since(start)
	}
	best := func(dialect string, n int, arguments string) time.Duration { // of three: the machine may be busy
		return min(cost(dialect, n, arguments), cost(dialect, n, arguments), cost(dialect, n, arguments))
	}
	for _, dialect := range emit.Dialects() {
		for _, arguments := range []string{"", "{}"} {
			few, many := best(dialect, 6000, arguments), best(dialect, 60000, arguments)
			t.Logf("%s, arguments %q: 6,000 calls in %v, 60,000 in %v", dialect, arguments, few, many)
			if many > 60*few && many > 500*time.Millisecond {
				t.Errorf("%s, arguments %q: ten times the calls cost %v instead of %v", dialect, arguments, many, few)
			}
		}
	}
}
