package llmstream

import (
	"bufio"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// channel tells a client what starts and ends on a channel; with ?follow=1 it
// sends the frames of all its responses too.
func (c *Control) channel(w http.ResponseWriter, r *http.Request, as fanout.Access, name string) error {
	frames := r.URL.Query().Get("follow") == "1"
	sub, err := c.handler.app.shared.registry.Subscribe(name, as, frames, lastEventID(r))
	if err != nil {
		return refuseWith(w, r, emit.DialectText, refusal(err))
	}
	defer sub.Close()
	follower := &channelFollower{
		client:  client{w: w, rc: http.NewResponseController(w), dialect: dialectChannel, metrics: c.handler.app.metrics},
		sub:     sub,
		encoder: emit.NewChannel(),
		pace:    c.handler.pace,
	}
	follower.limitWrites(r, c.handler.writeTimeout)
	defer c.handler.watchClient(&follower.client)()
	follower.watch.EnableHeartbeat()
	follower.drain = c.handler.drain
	defer c.handler.join(&follower.client, drain.Always, func() {}).Leave()
	if err := follower.open(); err != nil {
		panic(http.ErrAbortHandler)
	}
	for {
		changed := sub.Changed()
		if err := follower.catchUp(); err != nil {
			panic(http.ErrAbortHandler) // one who comes back is told why
		}
		select {
		case <-follower.member.Away():
			return follower.sendAway()
		case <-changed:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// channelFollower is the client of a channel.
type channelFollower struct {
	client
	sub     *fanout.Subscription
	encoder *emit.Channel
	pace    pace
}

// dialectChannel is the dialect of channels: text, and every frame names its
// response.
const dialectChannel = "channel"

// catchUp writes what the client has not had yet.
func (f *channelFollower) catchUp() error {
	for items := f.sub.Read(); len(items) > 0; items = f.sub.Read() {
		if err := f.tell(items); err != nil {
			return err
		}
	}
	return f.sub.Err()
}

// tell writes some items.
func (f *channelFollower) tell(items []fanout.Item) error {
	var forgotten error
	err := f.write(func(bw *bufio.Writer) bool {
		for i := range items {
			if forgotten = f.encode(bw, &items[i]); forgotten != nil {
				break
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return forgotten
}

// encode writes the frames of one item.
func (f *channelFollower) encode(bw *bufio.Writer, item *fanout.Item) error {
	id := item.Response.ID()
	switch {
	case item.Started:
		f.encoder.Started(bw, f.had(item, 0), id, item.Response.Started)
	case item.Ended:
		f.encoder.Ended(bw, f.had(item, 0), id, string(fanout.StatusOf(item.Terminal)), item.Response.Model())
	case item.Events.Skipped > 0:
		return fanout.ErrForgotten // never a silent gap
	default:
		merge := 0
		if f.pace.lags(&item.Events) {
			merge = maxMerge
		}
		for index, ev, ok := item.Events.Next(merge); ok; index, ev, ok = item.Events.Next(merge) {
			f.encoder.Encode(bw, f.had(item, index), id, &ev)
		}
	}
	return nil
}

// sendAway tells the client to come back.
func (f *channelFollower) sendAway() error {
	f.metrics.reconnects.WithLabelValues(string(f.drain.Reason())).Inc()
	err := f.write(func(bw *bufio.Writer) bool {
		f.encoder.Reconnect(bw, f.sub.Position(), f.drain.Retry(), string(f.drain.Reason()))
		return true
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// had moves the client on and returns the id of the place where it is then.
func (f *channelFollower) had(item *fanout.Item, index int) string {
	f.sub.Had(item, index)
	return f.sub.Position()
}
