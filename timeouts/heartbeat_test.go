package timeouts_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

func TestHeartbeatComesAfterEverySilence(t *testing.T) {
	tests := []struct {
		name   string
		stream func(r *recorder)
		want   []happening
	}{
		{
			name:   "not before it is enabled",
			stream: func(r *recorder) { r.Begin(); r.Output(); r.Wrote(); r.until(100 * second) },
		},
		{
			name:   "from enabling on",
			stream: func(r *recorder) { r.until(20 * second); r.EnableHeartbeat(); r.until(52 * second) },
			want:   []happening{{"beat", 35 * second}, {"beat", 50 * second}},
		},
		{
			name: "enabled twice",
			stream: func(r *recorder) {
				r.EnableHeartbeat()
				r.until(10 * second)
				r.EnableHeartbeat()
				r.until(16 * second)
			},
			want: []happening{{"beat", 15 * second}},
		},
		{
			name: "only when nothing was written",
			stream: func(r *recorder) {
				r.EnableHeartbeat()
				for i := range 10 {
					r.until(time.Duration(i) * 14 * second)
					r.Wrote()
				}
				r.until(160 * second)
			},
			want: []happening{{"beat", 141 * second}, {"beat", 156 * second}},
		},
		{
			name: "output that is not sent is silence",
			stream: func(r *recorder) {
				r.EnableHeartbeat()
				for i := range 20 {
					r.until(time.Duration(i) * second)
					r.Output()
				}
			},
			want: []happening{{"beat", 15 * second}},
		},
		{
			name: "while blocked too",
			stream: func(r *recorder) {
				r.EnableHeartbeat()
				r.Block()
				r.until(31 * second)
			},
			want: []happening{{"beat", 15 * second}, {"beat", 30 * second}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := watch(t, timeouts.Limits{Heartbeat: 15 * second, Total: time.Hour, BetweenTokens: time.Hour})
				test.stream(r)
				r.Stop()
				r.want(t, test.want...)
			})
		})
	}
}

// A backend that only pings for half an hour: the client goes on hearing us.
func TestHeartbeatAfterHalfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := watch(t, timeouts.Limits{Heartbeat: 15 * second})
		r.Begin()
		r.EnableHeartbeat()
		r.until(31 * minute)
		r.Stop()
		var want []happening
		for at := 15 * second; at <= 31*minute; at += 15 * second {
			want = append(want, happening{"beat", at})
		}
		r.want(t, want...)
	})
}

// A beat would commit a 200 when the error can still be an HTTP status.
func TestExpiryGoesBeforeABeatAndEndsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := watch(t, timeouts.Limits{FirstToken: 30 * second, Heartbeat: 15 * second, Total: minute})
		r.Begin()
		r.EnableHeartbeat()
		r.want(t, happening{"beat", 15 * second}, happening{"first_token_timeout", 30 * second})
	})
}

// A client that takes nothing holds its beat up for as long as the write
// timeout lets it.
func TestABeatThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		expired := make(chan time.Duration, 10)
		beats := make(chan time.Duration, 10)
		w := timeouts.New(timeouts.Limits{BetweenTokens: 2 * minute, Heartbeat: 10 * second},
			func(*timeouts.TimeoutError) { expired <- time.Since(start) },
			func() { beats <- time.Since(start); time.Sleep(25 * second) })
		w.EnableHeartbeat()
		w.Output()
		time.Sleep(125 * second)
		synctest.Wait()
		w.Stop()
		// One at a time, the silence counting from the end of each.
		for _, want := range []time.Duration{10 * second, 45 * second, 80 * second, 115 * second} {
			if got := <-beats; got != want {
				t.Errorf("a beat began at %v, want %v", got, want)
			}
		}
		if len(beats) != 0 {
			t.Errorf("a beat began at %v while one was being sent", <-beats)
		}
		// The last of them hangs from 115 s to 140 s, and delays nothing.
		if got := <-expired; got != 2*minute {
			t.Errorf("expired at %v, want 2m", got)
		}
		w.StopAndWait()
		if got := time.Since(start); got != 140*second {
			t.Errorf("StopAndWait returned at %v, want when the beat did, at 2m20s", got)
		}
	})
}
