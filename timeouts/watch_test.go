package timeouts_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// happening is a callback and when it came, since the watch began.
type happening struct {
	what string // a code, or "beat"
	at   time.Duration
}

// recorder is a Watch together with what it did.
type recorder struct {
	*timeouts.Watch
	start      time.Time
	happenings []happening // read only when every other goroutine is blocked
}

// watch begins a Watch in a synctest bubble and stops it at the end of t.
func watch(t *testing.T, l timeouts.Limits) *recorder {
	t.Helper()
	r := &recorder{start: time.Now()}
	r.Watch = timeouts.New(l,
		func(err *timeouts.TimeoutError) { r.record(err.Code()) },
		func() { r.record("beat") })
	t.Cleanup(r.StopAndWait)
	return r
}

func (r *recorder) record(what string) {
	r.happenings = append(r.happenings, happening{what, time.Since(r.start)})
}

// until sleeps until a moment of the watch, counted from its beginning, and
// lets whatever is due at that moment happen.
func (r *recorder) until(at time.Duration) {
	time.Sleep(at - time.Since(r.start))
	synctest.Wait()
}

// want sleeps until a day later and fails the test unless exactly this came.
func (r *recorder) want(t *testing.T, want ...happening) {
	t.Helper()
	r.until(time.Since(r.start) + 24*time.Hour)
	if !slices.Equal(r.happenings, want) {
		t.Errorf("callbacks %v, want %v", r.happenings, want)
	}
}

const (
	second = time.Second
	minute = time.Minute
)

func TestTimeouts(t *testing.T) {
	tests := []struct {
		name   string
		limits timeouts.Limits
		stream func(r *recorder)
		want   []happening
	}{
		{
			name:   "no output at all",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: second, Total: minute},
			stream: func(r *recorder) { r.Begin() },
			want:   []happening{{"first_token_timeout", 5 * second}},
		},
		{
			name:   "first_token counts from Begin",
			limits: timeouts.Limits{FirstToken: 5 * second},
			stream: func(r *recorder) { r.until(7 * second); r.Begin() },
			want:   []happening{{"first_token_timeout", 12 * second}},
		},
		{
			name:   "without Begin there is no first_token",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: second},
			stream: func(*recorder) {},
		},
		{
			name:   "a second Begin changes nothing",
			limits: timeouts.Limits{FirstToken: 5 * second},
			stream: func(r *recorder) { r.Begin(); r.until(3 * second); r.Begin() },
			want:   []happening{{"first_token_timeout", 5 * second}},
		},
		{
			name:   "output before Begin",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: minute},
			stream: func(r *recorder) { r.Output(); r.until(second); r.Begin() },
			want:   []happening{{"between_tokens_timeout", minute}},
		},
		{
			// litellm#19184: between_tokens does not apply to the first one.
			name:   "first at 3 s, then a gap",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: second},
			stream: func(r *recorder) { r.Begin(); r.until(3 * second); r.Output() },
			want:   []happening{{"between_tokens_timeout", 4 * second}},
		},
		{
			name:   "the gap counts from the last output",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: second},
			stream: func(r *recorder) {
				r.Begin()
				for i := range 100 {
					r.until(time.Duration(i) * 990 * time.Millisecond)
					r.Output()
				}
			},
			want: []happening{{"between_tokens_timeout", 99*990*time.Millisecond + second}},
		},
		{
			name:   "between_tokens alone",
			limits: timeouts.Limits{BetweenTokens: 2 * second},
			stream: func(r *recorder) { r.Begin(); r.until(minute); r.Output() },
			want:   []happening{{"between_tokens_timeout", minute + 2*second}},
		},
		{
			name:   "first_token alone is met for good",
			limits: timeouts.Limits{FirstToken: 5 * second},
			stream: func(r *recorder) { r.Begin(); r.until(5*second - 1); r.Output() },
		},
		{
			name:   "total",
			limits: timeouts.Limits{FirstToken: 5 * second, BetweenTokens: 2 * second, Total: 10 * second},
			stream: func(r *recorder) {
				r.Begin()
				for i := range 10 {
					r.until(time.Duration(i) * second)
					r.Output()
				}
			},
			want: []happening{{"total_timeout", 10 * second}},
		},
		{
			name:   "total counts from New",
			limits: timeouts.Limits{FirstToken: 5 * second, Total: 6 * second},
			stream: func(r *recorder) { r.until(2 * second); r.Begin() },
			want:   []happening{{"total_timeout", 6 * second}},
		},
		{
			name:   "at the same moment the more specific one",
			limits: timeouts.Limits{FirstToken: 5 * second, Total: 5 * second},
			stream: func(r *recorder) { r.Begin() },
			want:   []happening{{"first_token_timeout", 5 * second}},
		},
		{
			name:   "an output that comes with a much shorter gap than the timer was set for",
			limits: timeouts.Limits{FirstToken: 5 * minute, BetweenTokens: second, Total: 30 * minute},
			stream: func(r *recorder) { r.Begin(); r.until(2 * second); r.Output() },
			want:   []happening{{"between_tokens_timeout", 3 * second}},
		},
		{
			name:   "everything off",
			stream: func(r *recorder) { r.Begin(); r.EnableHeartbeat(); r.Output(); r.Wrote() },
		},
		{
			name:   "limits beyond what a clock can count",
			limits: timeouts.Limits{FirstToken: 1<<63 - 1, BetweenTokens: 1<<63 - 1, Total: 1<<63 - 1, Heartbeat: 1<<63 - 1},
			stream: func(r *recorder) { r.until(second); r.Begin(); r.EnableHeartbeat(); r.Output() },
		},
		{
			name:   "a limit beyond what a clock can count beside one that is not",
			limits: timeouts.Limits{BetweenTokens: 1<<63 - 1, Total: 2 * time.Hour},
			stream: func(r *recorder) { r.until(second); r.Output() },
			want:   []happening{{"total_timeout", 2 * time.Hour}},
		},
		{
			name:   "limits below zero",
			limits: timeouts.Limits{FirstToken: -1, BetweenTokens: -1, Total: -1, Heartbeat: -1},
			stream: func(r *recorder) { r.Begin(); r.EnableHeartbeat(); r.Output(); r.Wrote() },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := watch(t, test.limits)
				test.stream(r)
				r.want(t, test.want...)
			})
		})
	}
}

func TestBlockedTimeIsExcluded(t *testing.T) {
	limits := timeouts.Limits{FirstToken: 5 * second, BetweenTokens: 2 * second}
	tests := []struct {
		name   string
		total  time.Duration
		stream func(r *recorder)
		want   []happening
	}{
		{
			name: "from between_tokens",
			stream: func(r *recorder) {
				r.Output()
				r.until(second)
				r.Block()
				r.until(60 * second)
				r.Unblock()
			},
			want: []happening{{"between_tokens_timeout", 61 * second}},
		},
		{
			name: "from first_token",
			stream: func(r *recorder) {
				r.Begin()
				r.until(4 * second)
				r.Block()
				r.until(60 * second)
				r.Unblock()
			},
			want: []happening{{"first_token_timeout", 61 * second}},
		},
		{
			name: "each time",
			stream: func(r *recorder) {
				r.Output()
				for i := range 10 {
					r.until(time.Duration(i)*10*second + 100*time.Millisecond)
					r.Block()
					r.until(time.Duration(i+1) * 10 * second)
					r.Unblock()
				}
			},
			want: []happening{{"between_tokens_timeout", 101 * second}},
		},
		{
			name: "only once from where an output or Begin came meanwhile",
			stream: func(r *recorder) {
				r.Block()
				r.until(10 * second)
				r.Begin()
				r.until(20 * second)
				r.Output()
				r.until(30 * second)
				r.Unblock()
			},
			want: []happening{{"between_tokens_timeout", 32 * second}},
		},
		{
			name: "without nesting",
			stream: func(r *recorder) {
				r.Output()
				r.Block()
				r.until(10 * second)
				r.Block()
				r.until(20 * second)
				r.Unblock()
				r.until(21 * second)
				r.Unblock()
			},
			want: []happening{{"between_tokens_timeout", 22 * second}},
		},
		{
			name:   "for ever while nobody unblocks",
			stream: func(r *recorder) { r.Output(); r.Block() },
		},
		{
			name:   "not from total",
			total:  minute,
			stream: func(r *recorder) { r.Output(); r.Block() },
			want:   []happening{{"total_timeout", minute}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limits
				l.Total = test.total
				r := watch(t, l)
				test.stream(r)
				r.want(t, test.want...)
			})
		})
	}
}

// A whole answer, or a stream that is not understood, has no tokens to wait
// for and no place for a heartbeat.
func TestTotalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := watch(t, timeouts.Limits{
			FirstToken: 5 * second, BetweenTokens: second, Heartbeat: second, Total: minute,
		})
		r.Begin()
		r.EnableHeartbeat()
		r.until(2*second + 1)
		r.TotalOnly()
		r.Output()
		r.Begin()
		r.EnableHeartbeat()
		r.want(t, happening{"beat", second}, happening{"beat", 2 * second}, happening{"total_timeout", minute})
	})
}
