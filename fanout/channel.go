package fanout

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// channelName names a channel: what belongs to one owner in one scope.
type channelName struct {
	Access
	name string
}

// nameOf returns the name of a channel as it is held.
func nameOf(as Access, name string) channelName {
	return channelName{as.bounded(), bounded(name)}
}

// channel is the log of a conversation: what starts, ends and is said on it has
// one order, its journal. The texts are in the logs of the responses.
type channel struct {
	registry *Registry
	name     channelName

	// guarded by registry.mu

	keep time.Duration // the longest Keep of its responses
	idle *list.Element // in registry.idle, while nothing uses it
	due  *time.Timer   // forgets it; likewise

	mu       sync.Mutex // guards all that follows
	journal  journal
	fresh    uint64               // the last position before the newest append
	notice   uint64               // position of the last start or end
	lost     uint64               // the last position that is no longer here
	lostNote uint64               // likewise, of a start or an end
	cut      uint64               // the position at which a running response was last dropped; 0: never
	numbers  uint32               // of responses so far
	listed   map[uint32]*Response // those that are running or kept, by number
	running  list.List            // of *Response, in order of beginning
	subs     map[*Subscription]struct{}
	frames   int                    // of subs, how many want frames
	overdue  map[*Response]struct{} // those whose keep time is over, but which have readers here
	noticed  signal                 // something has started or ended
	changed  signal                 // the same, or something was said
	size     int                    // that is accounted for
	counted  bool

	silent atomic.Bool // whether the journal is empty; set with mu held
}

// announced is what a response is in its channel. It is guarded by the
// channel's mu.
type announced struct {
	number         uint32
	said           int           // index of the last event in the journal
	began, over    uint64        // positions of its start and its end
	runningElement *list.Element // in channel.running
}

const (
	// maxJournal bounds the journal of one channel, in bytes: 200,000 changes
	// from one response to another.
	maxJournal = 1 << 20
	// journalShare is which part of the Registry's limit one journal may take
	// at most.
	journalShare = 16
)

// start announces a response whose log has some events already.
func (ch *channel) start(r *Response, index int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.fresh = ch.journal.head
	ch.numbers++
	r.in = announced{number: ch.numbers, runningElement: ch.running.PushBack(r)}
	ch.listed[r.in.number] = r
	ch.noteLocked(r, started)
	r.in.began = ch.journal.head
	ch.sayLocked(r, index)
	ch.accountLocked()
}

// say adds what a response has said, up to an index. It reports whether more
// memory is held now.
func (ch *channel) say(r *Response, index int) (grown bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.fresh = ch.journal.head
	ch.sayLocked(r, index)
	return ch.accountLocked()
}

func (ch *channel) sayLocked(r *Response, index int) {
	if n := index - r.in.said; n > 0 {
		ch.addLocked(entry{response: r.in.number, kind: said, from: r.in.said, n: n})
		r.in.said = index
		ch.changed.wake()
		ch.boundLocked()
	}
}

// finish announces the end of a response, whose last event has an index. Where
// it was cut, its log is not there any more, and so nothing that was said so far
// can be told in order; what has started and ended can.
func (ch *channel) finish(r *Response, index int, cut bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.fresh = ch.journal.head
	if cut {
		ch.lost, ch.cut = ch.journal.head, ch.journal.head
	}
	ch.sayLocked(r, index)
	ch.noteLocked(r, ended)
	r.in.over = ch.journal.head
	ch.running.Remove(r.in.runningElement)
	r.in.runningElement = nil
	ch.accountLocked()
}

// noteLocked adds a start or an end.
func (ch *channel) noteLocked(r *Response, kind entryKind) {
	ch.addLocked(entry{response: r.in.number, kind: kind, n: 1})
	ch.notice = ch.journal.head
	ch.noticed.wake()
	ch.changed.wake()
	ch.boundLocked()
}

// addLocked adds an entry to the journal.
func (ch *channel) addLocked(e entry) {
	ch.journal.add(e)
	if ch.silent.Load() {
		ch.silent.Store(false)
	}
}

// boundLocked drops the oldest of a journal that has become too long.
func (ch *channel) boundLocked() {
	bound := maxJournal
	if limit := ch.registry.limit.Load(); limit > 0 {
		bound = min(bound, int(limit/journalShare))
	}
	for ch.journal.size() > bound && len(ch.journal.blocks) > 1 {
		ch.journal.blocks[0].after(ch.lost, func(e entry) bool {
			if e.kind != said {
				ch.lostNote = max(ch.lostNote, e.first)
			}
			return true
		})
		ch.lost = max(ch.lost, ch.journal.end(0))
		ch.journal.trim(ch.lost)
	}
}

// leave takes back what was announced of a response that is no longer kept.
// All before its end goes with it: a reader that has not had that yet has lost
// something.
func (ch *channel) leave(r *Response) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.listed, r.in.number)
	delete(ch.overdue, r)
	ch.lost = max(ch.lost, r.in.over)
	ch.lostNote = max(ch.lostNote, r.in.over)
	ch.journal.trim(ch.lostNote)
	ch.silent.Store(ch.journal.empty())
	ch.accountLocked()
}

// hasLostLocked reports whether something is no longer there that a reader at a
// position has not had. One that is joining has not had what ran there either.
func (ch *channel) hasLostLocked(at uint64, frames, joining bool) bool {
	switch {
	case !frames:
		return at < ch.lostNote
	case joining:
		return at < ch.lost || ch.cut > 0 && at <= ch.cut
	default:
		return at < ch.lost
	}
}

// current returns the running response that began last, nil where none runs.
func (ch *channel) current() *Response {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if last := ch.running.Back(); last != nil {
		return last.Value.(*Response)
	}
	return nil
}

// readers is how many read the frames of every response of the channel.
func (ch *channel) readers() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.frames
}

// awaits reports whether a reader of frames has not had the end of a response
// yet, and remembers that the response is overdue because of that.
func (ch *channel) awaits(r *Response) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for s := range ch.subs {
		if s.frames && s.published < r.in.over {
			if ch.overdue == nil {
				ch.overdue = make(map[*Response]struct{})
			}
			ch.overdue[r] = struct{}{}
			return true
		}
	}
	delete(ch.overdue, r)
	return false
}

// The memory of a channel, in bytes, but for its journal and its names; and of
// what it holds for each of its responses.
const (
	channelSize   = 600
	announcedSize = 96
)

// accountLocked accounts for what the channel has come to hold. It reports
// whether it has grown.
func (ch *channel) accountLocked() (grown bool) {
	if !ch.counted {
		return false
	}
	size := channelSize + len(ch.name.Scope) + len(ch.name.Owner) + len(ch.name.name) +
		ch.journal.size() + len(ch.listed)*announcedSize
	if size == ch.size {
		return false
	}
	ch.registry.total.Add(int64(size - ch.size))
	grown = size > ch.size
	ch.size = size
	return grown
}

// discount takes the channel out of the account, for good.
func (ch *channel) discount() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.registry.total.Add(-int64(ch.size))
	ch.size, ch.counted = 0, false
}

// channelLocked returns a channel, which is a new one where there is none. The
// caller follows it, announces something on it, or calls tidyLocked. A new one
// begins at a position that no reader has been at.
func (reg *Registry) channelLocked(name channelName) *channel {
	ch := reg.channels[name]
	if ch == nil {
		ch = &channel{
			registry: reg, name: name, lost: reg.lost, lostNote: reg.lost, counted: true,
			listed: make(map[uint32]*Response), subs: make(map[*Subscription]struct{}),
		}
		ch.journal.head = max(reg.clock(), reg.reached)
		ch.fresh = ch.journal.head
		ch.silent.Store(true)
		ch.accountLocked()
		reg.channels[name] = ch
	}
	reg.useLocked(ch)
	return ch
}

// useLocked takes a channel off the list of those that nothing uses.
func (reg *Registry) useLocked(ch *channel) {
	if ch.idle != nil {
		reg.idle.Remove(ch.idle)
		ch.due.Stop()
		ch.idle, ch.due = nil, nil
	}
}

// tidyLocked forgets a channel that has no readers and no responses: not at
// once, but after as long as it kept its responses. Then only the last lost
// position of all such channels is known, and a reader that was cut off from
// one that was idle for long must not be told that it has lost something.
func (reg *Registry) tidyLocked(ch *channel) {
	ch.mu.Lock()
	used := len(ch.subs) > 0 || len(ch.listed) > 0
	ch.mu.Unlock()
	if used || ch.idle != nil || reg.channels[ch.name] != ch {
		return
	}
	idle := reg.idle.PushBack(ch)
	ch.idle = idle
	ch.due = time.AfterFunc(ch.keep, func() {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		if ch.idle == idle { // else it was used while this waited for the lock
			reg.forgetChannelLocked(ch)
		}
	})
}

// forgetChannelLocked forgets a channel that nothing uses.
func (reg *Registry) forgetChannelLocked(ch *channel) {
	reg.useLocked(ch)
	delete(reg.channels, ch.name)
	ch.discount()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	reg.lost = max(reg.lost, ch.lost)
	reg.reached = max(reg.reached, ch.journal.head)
}

// clock is the position at which a channel stands that begins now: no channel
// has been so far, but one on which more than a million events a second were
// said for all of its time. So positions of different channels, and of one
// channel that was forgotten and begins again, can be compared: what is lost on
// one that is forgotten was said long ago.
func (reg *Registry) clock() uint64 {
	return uint64(time.Since(reg.began)/time.Microsecond) + 1 //nolint:gosec // time passes forward
}

// Current returns the running response of a channel that began last, nil where
// none runs.
func (reg *Registry) Current(name string, as Access) *Response {
	reg.mu.Lock()
	ch := reg.channels[nameOf(as, name)]
	reg.mu.Unlock()
	if ch == nil {
		return nil
	}
	return ch.current()
}

// Publish tells that the response is a stream, or will be one, and announces it
// on its channel, once.
func (r *Response) Publish() {
	reg := r.registry
	reg.mu.Lock()
	r.mu.Lock()
	select {
	case <-r.published:
	default:
		close(r.published)
	}
	if r.Channel != "" && r.channel == nil && r.counted && r.stage == running && r.told == nil {
		ch := reg.channelLocked(channelName{r.Access, r.Channel})
		ch.keep = max(ch.keep, r.Keep)
		r.channel = ch
		ch.start(r, r.headLocked())
	}
	r.mu.Unlock()
	reg.mu.Unlock()
	reg.relieve()
}

// tellLocked announces how the response has ended, once. r.mu must be held.
func (r *Response) tellLocked(terminal *event.Event) {
	if r.told != nil {
		return
	}
	r.told = terminal
	if r.channel != nil {
		r.channel.finish(r, r.headLocked(), terminal == tooLarge)
	}
}
