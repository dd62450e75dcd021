package fanout

import (
	"slices"

	"github.com/caddy-llmstream/caddy-llmstream/provider"
)

// channelName names a channel: what belongs to one owner in one scope.
type channelName struct {
	Access
	name string
}

// Channel announces the responses of one conversation to who follows it. All
// of it is guarded by registry.mu.
type Channel struct {
	registry  *Registry
	name      channelName
	notices   []Notice
	lost      uint64 // the last notice that is no longer here
	followers int
	changed   chan struct{} // closed at the next change; nil while nobody waits
}

// Notice says that a response of a channel has started, or has ended.
type Notice struct {
	Response *Response
	// Terminal is nil where the response has started.
	Terminal *provider.Event

	seq uint64
}

func (ch *Channel) wake() {
	if ch.changed != nil {
		close(ch.changed)
		ch.changed = nil
	}
}

// tell adds a notice. The caller holds registry.mu, as with all that follows.
func (ch *Channel) tell(r *Response, terminal *provider.Event) {
	ch.registry.seq++
	ch.notices = append(ch.notices, Notice{Response: r, Terminal: terminal, seq: ch.registry.seq})
	ch.wake()
}

// join announces the beginning of a response.
func (reg *Registry) join(r *Response) {
	r.channel = reg.channelOf(channelName{r.Access, r.Channel})
	r.channel.tell(r, nil)
}

func (reg *Registry) channelOf(name channelName) *Channel {
	ch := reg.channels[name]
	if ch == nil {
		ch = &Channel{registry: reg, name: name, lost: reg.lost}
		reg.channels[name] = ch
	}
	return ch
}

// announce announces the end of a response.
func (reg *Registry) announce(r *Response, terminal *provider.Event) {
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
	ch.notices = slices.DeleteFunc(ch.notices, func(n Notice) bool {
		if n.Response == r {
			ch.lost = max(ch.lost, n.seq)
		}
		return n.Response == r
	})
	ch.wake()
	reg.tidy(ch)
}

// tidy forgets a channel that nobody follows and that has nothing to say.
func (reg *Registry) tidy(ch *Channel) {
	if ch.followers == 0 && len(ch.notices) == 0 && reg.channels[ch.name] == ch {
		reg.lost = max(reg.lost, ch.lost)
		delete(reg.channels, ch.name)
	}
}
