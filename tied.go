package llmstream

import (
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// tied is the handover of a producer that ends with its only client. A client
// that keeps up is waited for, so that it misses nothing of what comes at once;
// one that does not catch up in time is left behind until it has.
type tied struct {
	*handover
	stream *fanout.Stream
	pace   pace
	left   bool   // behind
	cut    func() // ends the client's write
}

// deliver implements outlet.
func (t *tied) deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Output()
	switch {
	case t.lag() <= t.pace.events:
		t.left = false
	case !t.left:
		t.left = !t.awaitClient()
		if t.left && !t.isGone() && t.pace.policyOf(t.client.dialect) == slowDisconnect {
			t.client.dismiss()
			t.cut() // it is in a write that may last long
		}
	}
	return at, nil
}

// lag returns how many events have not been written to the client.
func (t *tied) lag() int {
	head, _ := t.stream.Head()
	return head - int(t.client.position.Load())
}

// awaitClient waits until the client has caught up, and reports whether it has
// in time.
func (t *tied) awaitClient() bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for t.lag() > t.pace.events {
		select {
		case <-t.client.took:
		case <-t.gone:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// Interface guard
var _ outlet = (*tied)(nil)
