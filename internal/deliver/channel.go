package deliver

import (
	"bufio"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// DialectChannel is the dialect of channels: text, and every frame names its
// response.
const DialectChannel = "channel"

// ChannelFollower reads a channel for one client. It belongs to one goroutine.
type ChannelFollower struct {
	*Conn
	sub     *fanout.Subscription
	encoder *emit.Channel
	pace    Pace
}

// NewChannelFollower returns a follower of a subscription.
func NewChannelFollower(c *Conn, sub *fanout.Subscription, pace Pace) *ChannelFollower {
	return &ChannelFollower{Conn: c, sub: sub, encoder: emit.NewChannel(), pace: pace}
}

// Step writes what the client has not had yet. After an error the connection
// must be aborted: a client that comes back is told why.
func (f *ChannelFollower) Step() error {
	for items := f.sub.Read(); len(items) > 0; items = f.sub.Read() {
		if err := f.tell(items); err != nil {
			return err
		}
	}
	return f.sub.Err()
}

// tell writes some items.
func (f *ChannelFollower) tell(items []fanout.Item) error {
	var forgotten error
	err := f.write(func(bw *bufio.Writer) bool {
		for i := range items {
			if forgotten = f.encodeLocked(bw, &items[i]); forgotten != nil {
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

// encodeLocked writes the frames of one item. f.mu must be held.
func (f *ChannelFollower) encodeLocked(bw *bufio.Writer, item *fanout.Item) error {
	id := item.Response.ID()
	switch {
	case item.Started:
		f.encoder.Started(bw, f.advance(item, 0), id, item.Response.Started)
	case item.Ended:
		f.encoder.Ended(bw, f.advance(item, 0), id, string(fanout.StatusOf(item.Terminal)), item.Response.Model())
	case item.Events.Skipped > 0:
		return fanout.ErrForgotten // never a silent gap
	default:
		merge := 0
		if f.pace.lags(&item.Events) {
			merge = maxMerge
		}
		for index, ev, ok := item.Events.Next(merge); ok; index, ev, ok = item.Events.Next(merge) {
			f.encoder.Encode(bw, f.advance(item, index), id, &ev)
		}
	}
	return nil
}

// Reconnect tells the client to come back.
func (f *ChannelFollower) Reconnect(reason event.Reason) error {
	f.Metrics.Reconnect(reason)
	return f.write(func(bw *bufio.Writer) bool {
		f.encoder.Reconnect(bw, f.sub.Position(), f.Retry(), string(reason))
		return true
	})
}

// advance moves the client on and returns the id of the place where it is then.
func (f *ChannelFollower) advance(item *fanout.Item, index int) string {
	f.sub.Had(item, index)
	return f.sub.Position()
}
