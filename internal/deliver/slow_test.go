package deliver_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// texts returns n texts: t1 and so on.
func texts(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("t%d", 1+i))
	}
	return all
}

// lag lets a client be held up in a write of the first event for a time, while
// the log grows by n events, each an append of its own, and takes everything
// again after that.
func lag(t *testing.T, c *connection, f *deliver.Follower, held time.Duration, n int) {
	t.Helper()
	c.say(t, "first")
	c.Stall()
	result := make(chan error, 1)
	go func() { result <- f.Step() }()
	synctest.Wait()
	for _, text := range texts(n) {
		c.say(t, text)
	}
	time.Sleep(held)
	c.TakeAll()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

const (
	short = 10 * time.Millisecond // a write that does not make a client slow
	long  = time.Second           // one that does
)

// What becomes of a client that lags by its policy; one that lags although its
// connection has not held a write up loses nothing.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	pace := func(policy deliver.Policy) deliver.Pace {
		return deliver.Pace{Policy: policy, Events: 4, Resumable: true}
	}
	var single strings.Builder
	single.WriteString(frame(1, "first"))
	for i, text := range texts(10) {
		single.WriteString(frame(i+2, text))
	}
	merged := frame(1, "first") + frame(11, strings.Join(texts(10), ""))
	for name, tc := range map[string]struct {
		policy deliver.Policy
		held   time.Duration
		lag    int
		body   string
		metric string
		err    error
	}{
		"block":                         {policy: deliver.SlowBlock, held: long, lag: 10, body: single.String()},
		"coalesce":                      {policy: deliver.SlowCoalesce, held: long, lag: 10, body: merged, metric: `slow_clients_total{action="coalesced"}`},
		"coalesce, within the buffer":   {policy: deliver.SlowCoalesce, held: long, lag: 2, body: frame(1, "first") + frame(2, "t1") + frame(3, "t2")},
		"drop":                          {policy: deliver.SlowDrop, held: long, lag: 10, body: frame(1, "first") + "id: id:11\nevent: gap\ndata: {\"dropped\":10}\n\n", metric: `slow_clients_total{action="dropped"}`},
		"drop, not held up":             {policy: deliver.SlowDrop, held: short, lag: 10, body: single.String()},
		"drop, within the buffer":       {policy: deliver.SlowDrop, held: long, lag: 2, body: frame(1, "first") + frame(2, "t1") + frame(3, "t2")},
		"disconnect, not held up":       {policy: deliver.SlowDisconnect, held: short, lag: 10, body: single.String()},
		"disconnect, within the buffer": {policy: deliver.SlowDisconnect, held: long, lag: 2, body: frame(1, "first") + frame(2, "t1") + frame(3, "t2")},
		"disconnect": {
			policy: deliver.SlowDisconnect, held: long, lag: 10, metric: `slow_clients_total{action="disconnected"}`,
			body: frame(1, "first") + "id: id:1\nevent: reconnect\nretry: 2000\ndata: {\"reason\":\"slow_client\",\"retry_ms\":2000}\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t)
				f := c.follow(pace(tc.policy))
				lag(t, c, f, tc.held, tc.lag)
				step(t, f)
				equal(t, "body", c.Body(), tc.body)
				for _, action := range []string{"coalesced", "dropped", "disconnected", "write_timeout"} {
					metric := fmt.Sprintf("slow_clients_total{action=%q}", action)
					equal(t, metric, c.count(t, metric) == 1, metric == tc.metric)
				}
				equal(t, "over", f.Over(), tc.metric == `slow_clients_total{action="disconnected"}`)
			})
		})
	}
}

// A client without a response to come back to is sent away without a frame, and
// its fate is that of a slow client.
func TestDisconnectForGood(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dialect string
		pace    deliver.Pace
	}{
		"without resume":                {"text", deliver.Pace{Policy: deliver.SlowDisconnect, Events: 4}},
		"in a dialect without a frame":  {"openai", deliver.Pace{Policy: deliver.SlowDisconnect, Events: 4, Resumable: true}},
		"drop in a dialect without gap": {"openai", deliver.Pace{Policy: deliver.SlowDrop, Events: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, dialect(tc.dialect))
				f := c.follow(tc.pace)
				lag(t, c, f, long, 10)
				if err := f.Step(); !errors.Is(err, deliver.ErrSlowClient) {
					t.Errorf("error %v", err)
				}
				equal(t, "reconnect frame", strings.Contains(c.Body(), "reconnect"), false)
				equal(t, "fate", f.Fate(c.request), event.OutcomeSlowClient)
			})
		})
	}
}

// Drop leaves nothing out for clients whose dialect cannot say so, where the log
// is kept.
func TestDropInADialectWithoutGaps(t *testing.T) {
	t.Parallel()
	equal(t, "policy", connect(t, dialect("openai")).follow(deliver.Pace{Policy: deliver.SlowDrop, Resumable: true}).Policy(), deliver.SlowCoalesce)
	equal(t, "policy", connect(t).follow(deliver.Pace{Policy: deliver.SlowDrop, Resumable: true}).Policy(), deliver.SlowDrop)
}

// A log that keeps only a window tells the client of what it has lost, and never
// leaves a gap in silence.
func TestWhatALogHasForgotten(t *testing.T) {
	t.Parallel()
	for policy, want := range map[deliver.Policy]error{
		deliver.SlowBlock: fanout.ErrForgotten, deliver.SlowCoalesce: fanout.ErrForgotten, deliver.SlowDisconnect: deliver.ErrSlowClient,
		deliver.SlowDrop: nil,
	} {
		c := connect(t)
		c.log.Window(4)
		f := c.follow(deliver.Pace{Policy: policy, Events: 4})
		for _, text := range texts(10_000) {
			c.say(t, text)
		}
		c.log.End(done)
		if err := f.Step(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", policy, err, want)
		}
		if policy == deliver.SlowDrop {
			equal(t, "body", c.Body(), "id: id:10000\nevent: gap\ndata: {\"dropped\":10000}\n\n"+doneFrame(10_001))
		}
	}
}

// A client that replays is catching up, not slow, until it has once been at the
// head of the log.
func TestReplayingIsNotSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []deliver.Policy{deliver.SlowDrop, deliver.SlowDisconnect, deliver.SlowCoalesce} {
			c := connect(t)
			for _, text := range texts(100) {
				c.say(t, text)
			}
			f := c.follow(deliver.Pace{Policy: policy, Events: 4, Resumable: true})
			f.Replaying()
			c.Stall()
			result := make(chan error, 1)
			go func() { result <- f.Step() }()
			time.Sleep(long)
			c.TakeAll()
			if err := <-result; err != nil {
				t.Fatal(err)
			}
			equal(t, "body", c.Body(), frame(100, strings.Join(texts(100), "")))
			equal(t, "over", f.Over(), false)
			c.say(t, "a")
			c.say(t, "b")
			step(t, f)
			equal(t, "not merged any more", strings.HasSuffix(c.Body(), frame(101, "a")+frame(102, "b")), true)
		}
	})
}

// A write that makes no progress ends the client; one that makes some does not,
// however long it takes: the timeout is that of a piece.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 100<<10)
	t.Run("no progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := connect(t, writeTimeout(30*time.Second))
			f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
			c.say(t, large)
			c.Stall()
			begin := time.Now()
			if err := f.Step(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			equal(t, "took", time.Since(begin), 30*time.Second)
			equal(t, "counted", c.count(t, `slow_clients_total{action="write_timeout"}`), 1)
			equal(t, "fate", f.Fate(c.request), event.OutcomeSlowClient)
			c.TakeAll()
			c.say(t, "more")
			if err := f.Step(); err == nil {
				t.Error("something is written after a write has failed")
			}
			equal(t, "failed", f.Failed(), true)
		})
	})
	t.Run("slow progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := connect(t, writeTimeout(30*time.Second))
			f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
			c.say(t, large)
			c.Stall()
			begin := time.Now()
			result := make(chan error, 1)
			go func() { result <- f.Step() }()
			for len(result) == 0 {
				time.Sleep(20 * time.Second)
				c.Take(4 << 10)
				synctest.Wait()
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
			equal(t, "took", time.Since(begin) > 8*time.Minute, true)
			equal(t, "body", c.Body(), frame(1, large))
			equal(t, "largest write", slices.Max(c.Writes()), 4<<10)
			deadlines := c.Deadlines()
			equal(t, "the last deadline is cleared", deadlines[len(deadlines)-1], 0)
			for _, deadline := range deadlines[:len(deadlines)-1] {
				equal(t, "deadline", deadline, 30*time.Second)
			}
		})
	})
	t.Run("what passes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := connect(t, writeTimeout(30*time.Second))
			w := c.Pass(http.StatusOK, http.Header{}, true, false)
			c.Stall()
			begin := time.Now()
			_, err := w.Write([]byte(large))
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			equal(t, "took", time.Since(begin), 30*time.Second)
			equal(t, "failed", c.Failed(), true)
		})
	})
	t.Run("a flush of what passes", func(t *testing.T) {
		t.Parallel()
		c := connect(t, writeTimeout(30*time.Second))
		w := c.Pass(http.StatusOK, http.Header{}, true, false)
		_, _ = w.Write([]byte("a"))
		before := len(c.Deadlines())
		c.BreakAtFlush()
		if err := http.NewResponseController(w).Flush(); err == nil {
			t.Error("no error")
		}
		equal(t, "a deadline was set", len(c.Deadlines()), before+1)
		equal(t, "the error is kept", c.Failed(), true)
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := connect(t)
			f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
			c.say(t, large)
			c.Stall()
			time.AfterFunc(24*time.Hour, c.TakeAll)
			step(t, f)
			equal(t, "deadlines", len(c.Deadlines()), 0)
		})
	})
}

// overrider is what bounds writes already, as Caddy's server does.
type overrider struct{ calls []string }

// Override implements deliver.Overrider.
func (o *overrider) Override(timeout time.Duration, minRate int64, maxChunk int) (restore func()) {
	o.calls = append(o.calls, fmt.Sprintf("%v %d %d", timeout.Round(time.Hour), minRate, maxChunk))
	return func() { o.calls = append(o.calls, "restored") }
}

// Where something bounds writes already, it is told once by how much, without a
// rate and in pieces, and no deadline is set beside it.
func TestWriteTimeoutThroughAnOverrider(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]string{2 * time.Hour: "2h0m0s 0 4096", 0: (10 * 365 * 24 * time.Hour).String() + " 0 4096"} {
		idle := new(overrider)
		c := connect(t, writeTimeout(timeout), func(c *connection) { c.config.Idle = idle })
		f := c.follow(deliver.Pace{Policy: deliver.SlowBlock, Events: 64})
		for _, text := range texts(5) {
			c.say(t, text)
			step(t, f)
		}
		c.Beat()
		equal(t, "calls", strings.Join(idle.calls, ", "), want)
		equal(t, "deadlines", len(c.Deadlines()), 0)
	}
}
