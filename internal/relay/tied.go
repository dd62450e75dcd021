package relay

import (
	"net/http"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// tied is like attached for a client whose pace must not hold the upstream back:
// the producer has a goroutine of its own, which ends with the client's request.
// The log keeps what the client may lag, and no more.
func (rt *Route) tied(q *Request) error {
	b := rt.newBound(q, rt.Pace.Events)
	defer b.cancel(nil)
	clientWatch := rt.clientWatch(b.follower.Conn)
	defer clientWatch.StopAndWait()
	member := rt.Drain.Join(drain.Never, b.drained, nil)
	defer member.Leave()
	defer rt.Board.AddReader(b.follower)()
	out := &tiedOutlet{
		handover: newHandover(b.follower.Conn, func(status int, header http.Header) {
			b.follower.Expect(status, header)
			clientWatch.EnableHeartbeat()
		}),
		bound: b, caughtUp: make(chan struct{}, 1),
	}
	watch := rt.producerWatch(b.cancel, nil)
	defer watch.StopAndWait()
	b.produce(watch, out)
	defer b.report()
	up := q.upstreamRequest(b.ctx, b.cancel, b.follower.Conn, b.record, func() {
		b.producer.AwaitStream()
		clientWatch.EnableHeartbeat()
	})
	var producing sync.WaitGroup
	producing.Go(func() { out.done <- run(rt, b.producer, q, up, b.cancel) })
	defer producing.Wait()
	defer b.cancel(ingest.ErrClientGone)
	c := &client{Request: q, route: rt, follower: b.follower, member: member, caughtUp: out.caughtUp}
	return c.attend(out.handover)
}

// tiedOutlet is the handover of a producer that ends with its only client. A
// client that keeps up is waited for, so that it misses nothing of what comes at
// once; one that does not catch up in time is left behind until it has.
type tiedOutlet struct {
	*handover
	bound    *bound
	caughtUp chan struct{} // gets a value when the client has had what there was
	behind   bool
}

// patience is how long a client is waited for that lags.
const patience = 50 * time.Millisecond

// Deliver implements ingest.Outlet.
func (o *tiedOutlet) Deliver(watch *timeouts.Watch) (time.Duration, error) {
	at := watch.Output()
	switch {
	case !o.lags():
		o.behind = false
	case !o.behind:
		o.behind = !o.awaitClient()
		if o.behind && !o.isGone() && o.bound.follower.Policy() == deliver.SlowDisconnect {
			o.bound.follower.Dismiss()
			o.bound.Cut() // it is in a write that may last long
		}
	}
	return at, nil
}

// lags reports whether the client lags more events than it may.
func (o *tiedOutlet) lags() bool {
	head, _ := o.bound.stream.Head()
	return head-int(o.bound.follower.Position()) > o.bound.route.Pace.Events
}

// awaitClient waits until the client has caught up, and reports whether it has
// in time.
func (o *tiedOutlet) awaitClient() bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for o.lags() {
		select {
		case <-o.caughtUp:
		case <-o.gone:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// Interface guard
var _ ingest.Outlet = (*tiedOutlet)(nil)
