// Package drain ends the open clients of a configuration in good order, when
// the configuration is replaced and when the process exits.
//
// The invariant: a client that can come back is told so at a moment of its own,
// so that not all come at once; every other one keeps its response until the
// deadline of the process's exit, and no longer.
package drain

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Config says how a Group sends clients away.
type Config struct {
	// Spread is the time over which clients that can come back are sent away.
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
	OnExit                    // it outlives the process as well
	Always                    // likewise, and there is no end to wait for
)

// CutAfter is how long after its end a client may take to be gone before its
// connection is cut.
const CutAfter = 300 * time.Millisecond

// Group is the open clients of one configuration. It is safe for concurrent
// use.
type Group struct {
	config Config

	mu       sync.Mutex
	reason   Reason
	sends    Returning // which are sent away: those that return as often, at least
	deadline time.Time // of the exit
	members  map[*Member]struct{}
}

// New returns a Group without clients.
func New(c Config) *Group {
	return &Group{config: c, members: make(map[*Member]struct{})}
}

// Member is one open client of a Group.
type Member struct {
	group     *Group
	returning Returning
	end       func()
	cut       func()
	away      chan struct{}

	// guarded by group.mu

	leaving *time.Timer // closes away; nil while it is not the client's turn
	ending  *time.Timer // calls end, and then cut

	acting   sync.Mutex // held while end or cut runs
	departed bool       // guarded by acting
}

// Join adds a client, which must Leave. At the deadline of the exit end is
// called, which has to bring the client's response to an end, and CutAfter
// later cut, which has to free the client's goroutine from whatever it waits
// for; either may be nil. Neither is called after Leave.
func (g *Group) Join(returning Returning, end, cut func()) *Member {
	m := &Member{group: g, returning: returning, end: end, cut: cut, away: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[m] = struct{}{}
	g.treat(m) // it may have come in the last moment
	return m
}

// Away returns a channel that is closed when it is this client's turn to be
// sent away.
func (m *Member) Away() <-chan struct{} { return m.away }

// Leave removes the client.
func (m *Member) Leave() {
	m.acting.Lock()
	m.departed = true
	m.acting.Unlock()
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	delete(m.group.members, m)
	for _, timer := range []*time.Timer{m.leaving, m.ending} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// Reason returns why the Group drains.
func (g *Group) Reason() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// Retry returns how long a client is to wait before it comes back: around
// Config.Retry, another time for each.
func (g *Group) Retry() time.Duration {
	return time.Duration(float64(g.config.Retry) * (0.75 + rand.Float64()/2)) //nolint:gosec // no secret
}

// Len returns how many clients there are.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// Reload sends clients away to the next configuration: those that return as
// often as given, or more often. The others stay. Only the first call has an
// effect, and none after Exit.
func (g *Group) Reload(returning Returning) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == None {
		g.begin(Reload, returning)
	}
}

// Exit sends the clients away that can go on at another process, and ends
// the others at the deadline. Only the first call has an effect.
func (g *Group) Exit(deadline time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != Exit {
		g.deadline = deadline
		g.begin(Exit, OnExit)
	}
}

// begin starts to drain. The caller holds mu, as with all that follows.
func (g *Group) begin(reason Reason, sends Returning) {
	g.reason, g.sends = reason, sends
	for m := range g.members {
		g.treat(m)
	}
}

// treat does with a client what the reason demands.
func (g *Group) treat(m *Member) {
	switch {
	case g.reason == None:
		return
	case m.returning != Never && m.returning >= g.sends:
		g.sendAway(m)
	case m.leaving != nil && m.leaving.Stop():
		m.leaving = nil // there is no next configuration to come back to
	}
	if g.reason == Exit {
		m.ending = time.AfterFunc(time.Until(g.deadline), m.finish)
	}
}

// sendAway gives a client its moment.
func (g *Group) sendAway(m *Member) {
	if m.leaving != nil {
		return
	}
	spread := g.config.Spread
	if g.reason == Exit {
		spread = min(spread, time.Until(g.deadline))
	}
	after := time.Duration(rand.Int64N(int64(max(spread, 1)))) //nolint:gosec // no secret
	m.leaving = time.AfterFunc(after, func() { close(m.away) })
}

// finish brings the client's response to an end, and cuts it off later.
func (m *Member) finish() {
	if !m.unlessDeparted(m.end) {
		return
	}
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	if _, here := m.group.members[m]; here {
		m.ending = time.AfterFunc(CutAfter, func() { m.unlessDeparted(m.cut) })
	}
}

// unlessDeparted calls f, and reports whether the client was still there.
func (m *Member) unlessDeparted(f func()) bool {
	m.acting.Lock()
	defer m.acting.Unlock()
	if m.departed {
		return false
	}
	if f != nil {
		f()
	}
	return true
}
