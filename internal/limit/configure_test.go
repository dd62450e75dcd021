package limit_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/limit"
)

// full returns a limiter whose two places are taken and whose queue holds
// five requests with different keys.
func full(t *testing.T) (*limit.Limiter, []*limit.Slot, []*request) {
	t.Helper()
	l := limit.New(limit.Config{Max: 2, Queue: 5, Wait: time.Minute})
	held := []*limit.Slot{mustAcquire(t, l, "x"), mustAcquire(t, l, "y")}
	var queue []*request
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		queue = append(queue, start(t, l, key))
	}
	return l, held, queue
}

func TestConfigureAdmitsWaitersInOrder(t *testing.T) {
	tests := map[string]struct {
		max  int
		want []int
	}{
		"same":   {max: 2, want: nil},
		"higher": {max: 5, want: []int{0, 1, 2}},
		"off":    {max: 0, want: []int{0, 1, 2, 3, 4}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _, queue := full(t)
				l.Configure(limit.Config{Max: test.max, Queue: 5, Wait: time.Minute})
				if got := settled(queue); !slices.Equal(got, test.want) {
					t.Fatalf("admitted %v of the queue, want %v", got, test.want)
				}
				wantStats(t, l, 2+len(test.want), 5-len(test.want))
				for _, i := range test.want {
					queue[i].want(t, nil)
				}
			})
		})
	}
}

func TestConfigureLowerAdmitsNobodyUntilEnoughAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held, queue := full(t)
		l.Configure(limit.Config{Max: 1, Queue: 5, Wait: time.Minute})
		wantStats(t, l, 2, 5)
		held[0].Release()
		wantStats(t, l, 1, 5)
		held[1].Release()
		queue[0].want(t, nil)
		wantStats(t, l, 1, 4)
	})
}

func TestConfigureShorterQueueTurnsAwayOnlyNewOnes(t *testing.T) {
	for name, config := range map[string]limit.Config{
		"shorter": {Max: 2, Queue: 1, Wait: time.Minute},
		"none":    {Max: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, held, queue := full(t)
				l.Configure(config)
				wantStats(t, l, 2, 5)
				refusal := limit.ErrQueueFull
				if config.Queue == 0 {
					refusal = limit.ErrTooMany
				}
				start(t, l, "new").want(t, refusal)
				held[0].Release()
				queue[0].want(t, nil)
				start(t, l, "new").want(t, refusal)
			})
		})
	}
}

func TestConfigureWaitConcernsOnlyNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, queue := full(t)
		l.Configure(limit.Config{Max: 2, Queue: 6, Wait: time.Second})
		late := start(t, l, "late")
		time.Sleep(time.Second)
		late.want(t, limit.ErrQueueTimeout)
		wantStats(t, l, 2, 5)
		time.Sleep(59 * time.Second)
		for _, r := range queue {
			r.want(t, limit.ErrQueueTimeout)
		}
	})
}

// Keys are counted also while they are not limited, so that a limit which
// comes with a reload knows what is running.
func TestConfigurePerKeyKnowsWhoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held, queue := full(t)
		l.Configure(limit.Config{Max: 3, Queue: 5, Wait: time.Minute, PerKey: 1})
		queue[0].want(t, nil)
		for _, key := range []string{"x", "a", "e"} {
			start(t, l, key).want(t, limit.ErrKeyLimit)
		}
		held[0].Release()
		queue[1].want(t, nil)
		if r := start(t, l, "x"); !r.waits() {
			t.Fatal("a key that has nothing running is refused")
		}
	})
}
