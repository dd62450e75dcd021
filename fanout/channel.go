package fanout

import (
	"slices"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// channelName names a channel: what belongs to one owner in one scope.
type channelName struct {
	Access
	name string
}

// channel announces the responses of one conversation to who follows it. All
// of it is guarded by registry.mu.
type channel struct {
	registry  *Registry
	name      channelName
	notices   []notice
	lost      uint64        // the last notice that is no longer here
	keep      time.Duration // the longest Keep of its responses
	followers int
	timer     *time.Timer // forgets the channel; runs while nobody follows it and it has nothing to say
	noticed   signal      // there is a new notice
	changed   signal      // the same, or a response has gone on
}

// notice says that a response of a channel has started, or has ended.
type notice struct {
	response *Response
	// terminal is nil where the response has started.
	terminal *event.Event

	seq uint64
}

// tell adds a notice. The caller holds registry.mu, as with all that follows.
func (ch *channel) tell(r *Response, terminal *event.Event) {
	ch.registry.seq++
	ch.notices = append(ch.notices, notice{response: r, terminal: terminal, seq: ch.registry.seq})
	ch.noticed.wake()
	ch.changed.wake()
}

// join announces the beginning of a response.
func (reg *Registry) join(r *Response) {
	r.channel = reg.channelOf(channelName{r.Access, r.Channel})
	r.channel.keep = max(r.channel.keep, r.Keep)
	r.channel.tell(r, nil)
}

// channelOf returns a channel for who will follow it or announce something on
// it, or tidy it.
func (reg *Registry) channelOf(name channelName) *channel {
	ch := reg.channels[name]
	if ch == nil {
		ch = &channel{registry: reg, name: name, lost: reg.lost}
		reg.channels[name] = ch
	}
	ch.disarm()
	return ch
}

// announce announces the end of a response.
func (reg *Registry) announce(r *Response, terminal *event.Event) {
	if r.channel != nil {
		r.channel.tell(r, terminal)
	}
}

// leaveChannel takes back the notices of a response that is no longer kept.
func (reg *Registry) leaveChannel(r *Response) {
	ch := r.channel
	if ch == nil {
		return
	}
	r.channel = nil
	ch.notices = slices.DeleteFunc(ch.notices, func(n notice) bool {
		if n.response == r {
			ch.lost = max(ch.lost, n.seq)
		}
		return n.response == r
	})
	reg.tidy(ch)
}

// tidy forgets a channel that nobody follows and that has nothing to say: not
// at once, but after as long as it kept its responses. Then only the last lost
// notice of all such channels is known, and a reader who was cut off from one
// that was idle for long must not be told that something of it was lost.
func (reg *Registry) tidy(ch *channel) {
	if ch.followers > 0 || len(ch.notices) > 0 || reg.channels[ch.name] != ch {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(ch.keep, func() {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		if ch.timer == timer { // else it was disarmed while this waited for the lock
			ch.timer = nil
			reg.lost = max(reg.lost, ch.lost)
			delete(reg.channels, ch.name)
		}
	})
	ch.timer = timer
}

// disarm stops the timer.
func (ch *channel) disarm() {
	if ch.timer != nil {
		ch.timer.Stop()
		ch.timer = nil
	}
}
