package relay

import (
	"errors"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// Resume goes on with the response that an event id names.
func (rt *Route) Resume(q *Request, as fanout.Access, eventID string) error {
	id, index, err := fanout.ParseEventID(eventID)
	var response *fanout.Response
	release := func() {}
	if err == nil {
		response, release, err = rt.find(q, id, as)
	}
	if err != nil {
		rt.resumeResult(err)
		return rt.Refuse(q.W, q.Request, emit.DialectText, RefusalOf(err))
	}
	defer release()
	return rt.followFrom(q, response, index)
}

// Follow gives a client a response from an event id on, which is one of the
// response; from the start where it is empty.
func (rt *Route) Follow(q *Request, as fanout.Access, id, eventID string) error {
	response, release, err := rt.find(q, id, as)
	if err != nil {
		rt.resumeResult(err)
		return rt.Refuse(q.W, q.Request, emit.DialectText, RefusalOf(err))
	}
	defer release()
	index := 0
	if eventID != "" {
		var of string
		of, index, err = fanout.ParseEventID(eventID)
		if err == nil && of != id {
			err = fanout.ErrBadCursor
		}
		if err != nil {
			rt.resumeResult(err)
			return rt.Refuse(q.W, q.Request, response.Dialect, RefusalOf(err))
		}
	}
	return rt.followFrom(q, response, index)
}

// Snapshot gives a client what a response has come to, as JSON.
func (rt *Route) Snapshot(q *Request, as fanout.Access, id string) error {
	response, release, err := rt.find(q, id, as)
	if err != nil {
		return rt.Refuse(q.W, q.Request, emit.DialectText, RefusalOf(err))
	}
	defer release()
	if m := mirrorOf(response); m != nil {
		_ = m.reach(q.Context(), m.known) // a client that reads once has all that there was
	}
	err = rt.newConn(q, id, response.Dialect, true, nil).Snapshot(response)
	if err != nil && !errors.Is(err, fanout.ErrExpired) {
		panic(http.ErrAbortHandler) // the client has left, or takes nothing
	}
	if err != nil {
		return rt.Refuse(q.W, q.Request, emit.DialectText, RefusalOf(err))
	}
	return nil
}

// followFrom gives a client a response from the event index on. Where it has
// ended and the client has had everything, the answer is 204, which makes an
// EventSource stop.
func (rt *Route) followFrom(q *Request, response *fanout.Response, index int) error {
	if m := mirrorOf(response); m != nil {
		if err := m.reach(q.Context(), index); err != nil {
			rt.resumeResult(err)
			return rt.Refuse(q.W, q.Request, response.Dialect, RefusalOf(err))
		}
	}
	c, err := rt.newClient(q, response, index)
	if err != nil {
		rt.resumeResult(err)
		return rt.Refuse(q.W, q.Request, response.Dialect, RefusalOf(err))
	}
	defer response.Leave()
	if record := recordOf(response); record != nil {
		q.Followed(observe.Followed{Record: record, Sent: c.follower.Sent})
	}
	if c.follower.AtEnd() {
		rt.Metrics.Resume(event.ResumeEnded)
		q.W.Header().Set("Cache-Control", "no-store")
		q.W.WriteHeader(http.StatusNoContent)
		return nil
	}
	rt.resumeResult(nil)
	watch := rt.clientWatch(c.follower.Conn)
	defer watch.StopAndWait()
	defer rt.joinReader(c, response).Leave()
	defer rt.Board.AddReader(c.follower)()
	watch.EnableHeartbeat()
	c.follower.Replaying()
	if err := c.follower.Open(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return c.follow()
}

// newClient returns a client that reads a response from an index on, and must
// Leave the response.
func (rt *Route) newClient(q *Request, response *fanout.Response, index int) (*client, error) {
	cursor, err := response.Follow(index)
	if err != nil {
		return nil, err
	}
	conn := rt.newConn(q, response.ID(), response.Dialect, true, func() identity { return identityOf(response) })
	conn.Describe(response.Header())
	return &client{
		Request: q, route: rt, follower: deliver.NewFollower(conn, cursor, rt.Pace),
		discarded: response.Discarded(), why: response.Why,
		mustStay: func() bool { return rt.Drain.Reason() == drain.Exit && copyOf(response).isLocal() },
	}, nil
}

// identityOf returns what frames tell of a response; nil while nothing is known.
func identityOf(response *fanout.Response) identity {
	if m := mirrorOf(response); m != nil {
		return m
	}
	if record := recordOf(response); record != nil {
		return record
	}
	return nil
}

// joinReader makes a client one of those that are drained. At the deadline its
// response is ended.
func (rt *Route) joinReader(c *client, response *fanout.Response) *drain.Member {
	returning := drain.Never
	switch {
	case response.Dialect != emit.DialectText:
	case rt.Shared != nil:
		returning = drain.OnExit
	default:
		returning = drain.OnReload
	}
	c.member = rt.Drain.Join(returning, rt.drained(response), nil)
	return c.member
}

// errDiscarded says that a response turned out to be none, so that its request
// may be made again.
var errDiscarded = errors.New("the response was discarded")

// share gives a client the response of an earlier request with the same
// idempotency key, once it is known to be one.
func (rt *Route) share(q *Request, response *fanout.Response) error {
	c, err := rt.newClient(q, response, 0)
	if err != nil {
		return errDiscarded // or expired between two looks, which is the same here
	}
	defer response.Leave()
	watch := rt.clientWatch(c.follower.Conn)
	defer watch.StopAndWait()
	defer rt.joinReader(c, response).Leave()
	defer rt.Board.AddReader(c.follower)()
	c.follower.Replaying()
	said := q.body.says()
	c.follower.WantUsage(said.usage)
	// Until it is known that there is a response, the client may have to make
	// the call itself.
	var away, admitted <-chan struct{}
	published := response.Published()
	if wantsStream(q, said.stream) {
		away, admitted = c.member.Away(), response.Admitted()
	}
	for {
		select {
		case <-admitted:
			watch.EnableHeartbeat()
			admitted = nil
		case <-published:
			published = nil
			if admitted == nil {
				watch.EnableHeartbeat()
			}
		case <-c.follower.Changed():
			q.body.drop() // there is a response: the client makes no call itself
			watch.EnableHeartbeat()
			c.follower.Describe(response.Header())
			if record := recordOf(response); record != nil {
				q.Followed(observe.Followed{Record: record, Sent: c.follower.Sent})
			}
			return c.follow()
		case <-response.Discarded():
			if c.follower.Seal() {
				return c.giveUp()
			}
			return errDiscarded
		case <-away:
			if !c.stays() {
				return c.sendAway()
			}
			away = nil
		case <-q.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// Channel tells a client what starts and ends on a channel, from a position on;
// with frames, the events of its responses too.
func (rt *Route) Channel(q *Request, as fanout.Access, name string, frames bool, from string) error {
	sub, err := rt.Registry.Subscribe(name, as, frames, from)
	if err != nil {
		return rt.Refuse(q.W, q.Request, emit.DialectText, RefusalOf(err))
	}
	defer sub.Close()
	f := deliver.NewChannelFollower(rt.newConn(q, "", deliver.DialectChannel, true, nil), sub, rt.Pace)
	watch := rt.clientWatch(f.Conn)
	defer watch.StopAndWait()
	watch.EnableHeartbeat()
	member := rt.Drain.Join(drain.Always, nil, nil)
	defer member.Leave()
	if err := f.Open(); err != nil {
		panic(http.ErrAbortHandler)
	}
	for {
		changed := sub.Changed()
		if err := f.Step(); err != nil {
			panic(http.ErrAbortHandler) // a client that comes back is told why
		}
		select {
		case <-member.Away():
			if err := f.Reconnect(event.Reason(rt.Drain.Reason())); err != nil {
				panic(http.ErrAbortHandler)
			}
			return nil
		case <-changed:
		case <-q.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}
