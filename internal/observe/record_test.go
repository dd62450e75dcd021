package observe_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// equal compares what something is with what it should be.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// What a backend says of its tokens, however much, leaves a counter that counts
// those of the others.
func TestAnAbsurdCountStopsNoCounter(t *testing.T) {
	t.Parallel()
	m := metrics()
	input := func(n int64) float64 {
		rec := observe.NewBoard().Begin(m, "id", "text", "", nil)
		defer rec.Leave()
		rec.End(event.OutcomeDone, nil, &event.TokenUsage{Input: n})
		return enginetest.Scrape(t, m)[`tokens_total{direction="input"}`]
	}
	absurd := input(math.MaxInt64)
	equal(t, "what the next one adds", input(1)-absurd, 1)
}

// A response is counted once, by the first that ends it, with what is known of
// the backend at that moment: also where the model came last.
func TestAResponseIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, m := observe.NewMetrics(func() int { return 3 })
		rec := observe.NewBoard().Begin(m, "id", "text", "", nil)
		equal(t, "active", enginetest.Scrape(t, m)["active_streams"], 1)
		rec.Identify(observe.Identity{Format: "llamacpp-completion"})
		rec.Received(100)
		rec.Output(2, time.Second)
		rec.Output(0, 2*time.Second) // nothing
		rec.Output(1, 3*time.Second)
		rec.Identify(observe.Identity{Format: "llamacpp-completion", Model: "late"})
		time.Sleep(4 * time.Second)
		usage := &event.TokenUsage{Input: 5, Output: 3}
		equal(t, "ended", rec.End(event.OutcomeDone, &event.Result{Finish: event.FinishStop}, usage), true)
		equal(t, "ended again", rec.End(event.OutcomeClientGone, nil, nil), false)
		time.Sleep(time.Minute)
		rec.Leave()
		s := rec.Snapshot()
		equal(t, "snapshot", fmt.Sprintf("%s %s %s %v %v", s.Outcome, s.Finish, s.Model, s.FirstToken, s.Duration), "done stop late 1s 4s")
		counts := enginetest.Scrape(t, m)
		for name, want := range map[string]float64{
			"active_streams": 0, "queued": 3, `upstream_bytes_total{model="late"}`: 100,
			`streams_total{format="llamacpp-completion",model="late",outcome="done"}`: 1,
			`first_token_seconds{model="late"}`:                                       1, `duration_seconds{model="late"}`: 1,
			`deltas_total{model="late"}`: 3, `between_tokens_seconds{model="late"}`: 2, // gaps are outputs less one
			`tokens_total{direction="input",model="late"}`: 5, `tokens_total{direction="output",model="late"}`: 3,
		} {
			equal(t, name, counts[name], want)
			delete(counts, name)
		}
		maps.DeleteFunc(counts, func(_ string, n float64) bool { return n == 0 })
		equal(t, "what else was counted", len(counts), 0)
	})
}

// How a response has ended, by its terminal event.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for want, terminal := range map[event.Outcome]*event.Event{
		event.OutcomeCancelled: event.TerminalCancelled, event.OutcomeDrained: event.TerminalDraining,
		event.OutcomeClientGone: event.TerminalRequestTimeout, "response_too_large": event.TerminalTooLarge,
		event.OutcomeDone: {Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}},
	} {
		equal(t, "outcome", observe.OutcomeOf(terminal), want)
	}
}

// A line is written at the level that the outcome deserves, with what is known.
func TestLog(t *testing.T) {
	t.Parallel()
	for outcome, level := range map[event.Outcome]zapcore.Level{
		event.OutcomeDone: zap.DebugLevel, event.OutcomeCancelled: zap.DebugLevel, event.OutcomeClientGone: zap.InfoLevel,
		event.OutcomeDrained: zap.InfoLevel, event.OutcomeSlowClient: zap.WarnLevel, "upstream_truncated": zap.WarnLevel,
	} {
		core, logs := observer.New(zapcore.DebugLevel)
		rec := observe.NewBoard().Begin(metrics(), "id", "text", "", nil)
		rec.Output(1, time.Second)
		rec.Output(1, 2*time.Second)
		rec.End(outcome, nil, &event.TokenUsage{Input: 3, Output: 8})
		rec.Sent(7)
		rec.Log(zap.New(core))
		rec.Leave()
		entry := logs.All()[0]
		equal(t, string(outcome), entry.Level, level)
		fields := entry.ContextMap()["llm_stream"].(map[string]any)
		for name, want := range map[string]any{
			"response_id": "id", "outcome": string(outcome), "first_token_ms": 1000.0, "deltas": int64(2),
			"input_tokens": int64(3), "output_tokens": int64(8), "tokens_per_second": 8.0, "client_bytes": int64(7),
		} {
			equal(t, name, fields[name], want)
		}
	}
}

// reader is a client at a place in a response.
type reader struct {
	id string
	at int64
}

// ResponseID implements observe.Reader.
func (r *reader) ResponseID() string { return r.id }

// Position implements observe.Reader.
func (r *reader) Position() int64 { return r.at }

// The list has what runs, with how far the slowest of its clients lags, and what
// is on it can be cancelled. It is the process's: no other test here may have a
// record at the same time.
func TestRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errStop := errors.New("stop")
		board := observe.NewBoard()
		var cause error
		rec := board.Begin(metrics(), "one", "text", "chat", func(err error) { cause = err })
		time.Sleep(2 * time.Second)
		younger := board.Begin(metrics(), "two", "openai", "", nil)
		defer younger.Leave()
		rec.Logged(10)
		removes := []func(){board.AddReader(&reader{"one", 9}), board.AddReader(&reader{"one", 4})}
		equal(t, "readers", board.Readers(), 2)
		list := board.List()
		equal(t, "responses", len(list), 2)
		one := list[0]
		equal(t, "the oldest", fmt.Sprintf("%s %s %s %d %d %d %d", one.ID, one.Emit, one.Channel, one.AgeMS, one.Events, one.Followers, one.SlowestLag), "one text chat 2000 10 2 6")
		equal(t, "the other one", fmt.Sprintf("%s %d", list[1].ID, list[1].Followers), "two 0")
		for _, remove := range removes {
			remove()
		}
		equal(t, "readers", board.Readers(), 0)
		equal(t, "cancelled", board.Cancel("one", errStop), true)
		equal(t, "cause", cause, errStop)
		rec.Leave()
		equal(t, "cancelled", board.Cancel("one", errStop), false)
	})
}

// The backend decides how many models there are, so not all have a label.
func TestModelLabelsAreBounded(t *testing.T) {
	t.Parallel()
	_, m := observe.NewMetrics(func() int { return 0 })
	for i := range 1010 {
		rec := observe.NewBoard().Begin(m, "id", "text", "", nil)
		rec.Identify(observe.Identity{Format: "f", Model: fmt.Sprintf("m%d", i)})
		rec.End(event.OutcomeDone, nil, nil)
		rec.Leave()
	}
	counts := enginetest.Scrape(t, m)
	equal(t, "one of the first", counts[`streams_total{format="f",model="m7",outcome="done"}`], 1)
	equal(t, "the others", counts[`streams_total{format="f",model="other",outcome="done"}`], 10)
}
