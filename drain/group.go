// Package drain ends the open clients of a configuration in good order, when
// the configuration is replaced and when the process exits.
//
// The invariant: a client who can come back is told so at a moment of its own,
// so that not all come at once; every other one keeps its response until the
// deadline of the process's exit, and no longer.
package drain

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Config says how a Group drains.
type Config struct {
	// Deadline is how long after the beginning of the exit the last client is
	// ended.
	Deadline time.Duration
	// Spread is the time over which clients who can come back are sent away.
	Spread time.Duration
	// Retry is about how long a client is to wait before it comes back.
	Retry time.Duration
}

// Reason is why a Group drains. Its values are what clients see.
type Reason string

// The reasons. None is that of a Group that does not drain.
const (
	None   Reason = ""
	Reload Reason = "reload" // another configuration has taken over
	Exit   Reason = "exit"   // the process ends
)

// Returning says when a client can come back and go on.
type Returning uint8

// When a client can come back.
const (
	Never    Returning = iota // its response is bound to its connection
	OnReload                  // its response outlives the configuration
	Always                    // it can go on in another process
)

// cutAfter is how long after its end a client may take to be gone before its
// connection is cut.
const cutAfter = 500 * time.Millisecond

// Group is the open clients of one configuration. It is safe for concurrent
// use.
type Group struct {
	config Config

	mu      sync.Mutex
	reason  Reason
	members map[*Member]struct{}
	empty   chan struct{} // closed while there are no members
	timers  []*time.Timer // of the exit
}

// New returns a Group without clients.
func New(c Config) *Group {
	g := &Group{config: c, members: make(map[*Member]struct{}), empty: make(chan struct{})}
	close(g.empty)
	return g
}

// Member is one open client of a Group.
type Member struct {
	group     *Group
	returning Returning
	end       func()
	cut       func()

	away     chan struct{}
	timer    *time.Timer // closes away
	cutting  sync.Mutex  // held while cut runs
	departed bool        // guarded by cutting
}

// Join adds a client, who must Leave. At the deadline of the exit end is
// called, which has to bring the client's response to an end, and a moment
// later cut, which has to free the client's goroutine from whatever it waits
// for. Neither is called after Leave.
func (g *Group) Join(returning Returning, end, cut func()) *Member {
	m := &Member{group: g, returning: returning, end: end, cut: cut, away: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 {
		g.empty = make(chan struct{})
	}
	g.members[m] = struct{}{}
	if g.sends(m) { // it came in the last moment
		g.sendAway(m)
	}
	return m
}

// Away returns a channel that is closed when it is this client's turn to be
// sent away.
func (m *Member) Away() <-chan struct{} { return m.away }

// Leave removes the client.
func (m *Member) Leave() {
	m.cutting.Lock()
	m.departed = true
	m.cutting.Unlock()
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
	delete(g.members, m)
	if len(g.members) > 0 {
		return
	}
	close(g.empty)
	for _, timer := range g.timers {
		timer.Stop()
	}
}

// Reason returns why the Group drains.
func (g *Group) Reason() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// Retry returns how long a client is to wait before it comes back: around
// Config.Retry, another time for everyone.
func (g *Group) Retry() time.Duration {
	return time.Duration(float64(g.config.Retry) * (0.75 + rand.Float64()/2)) //nolint:gosec // no secret
}

// Empty returns a channel that is closed when there are no clients. Clients
// that come later do not open it again.
func (g *Group) Empty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty
}

// Reload sends the clients away who can come back to the next configuration.
// The others stay.
func (g *Group) Reload() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == None {
		g.begin(Reload)
	}
}

// Exit sends the clients away who can come back to another process, and ends
// the others at the deadline, or after limit where that is shorter and not 0.
func (g *Group) Exit(limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == Exit {
		return
	}
	g.begin(Exit)
	if len(g.members) == 0 {
		return
	}
	deadline := g.config.Deadline
	if limit > 0 {
		deadline = min(deadline, limit)
	}
	g.timers = append(g.timers,
		time.AfterFunc(deadline, func() { g.each((*Member).finish) }),
		time.AfterFunc(deadline+cutAfter, func() { g.each((*Member).sever) }))
}

// begin starts to send away who can come back. The caller holds mu.
func (g *Group) begin(reason Reason) {
	g.reason = reason
	for m := range g.members {
		if g.sends(m) {
			g.sendAway(m)
		}
	}
}

// sends reports whether a client is to be sent away. The caller holds mu.
func (g *Group) sends(m *Member) bool {
	switch g.reason {
	case Reload:
		return m.returning >= OnReload
	case Exit:
		return m.returning == Always
	case None:
	}
	return false
}

// sendAway gives a client its moment. The caller holds mu.
func (g *Group) sendAway(m *Member) {
	if m.timer != nil {
		return
	}
	after := time.Duration(rand.Int64N(int64(max(g.config.Spread, 1)))) //nolint:gosec // no secret
	m.timer = time.AfterFunc(after, func() { close(m.away) })
}

// each does something with every client that is there.
func (g *Group) each(f func(*Member)) {
	g.mu.Lock()
	members := make([]*Member, 0, len(g.members))
	for m := range g.members {
		members = append(members, m)
	}
	g.mu.Unlock()
	for _, m := range members {
		f(m)
	}
}

// finish brings the client's response to an end.
func (m *Member) finish() { m.unlessDeparted(m.end) }

// sever frees the client's goroutine.
func (m *Member) sever() { m.unlessDeparted(m.cut) }

func (m *Member) unlessDeparted(f func()) {
	m.cutting.Lock()
	defer m.cutting.Unlock()
	if !m.departed {
		f()
	}
}
