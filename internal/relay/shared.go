package relay

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Shared is what this process has in common with other replicas: a store, into
// which copies of its responses go, and mirrors of theirs that somebody reads
// here. It outlives configurations. Routes of a process on its own have none.
type Shared struct {
	replica  *store.Replica
	registry *fanout.Registry
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	mirrors map[string]*mirror // by response id
	local   int                // copies that the store does not take
}

// NewShared returns what a process has in common with others. Mirrors are kept
// in its own registry, where they count like its own responses.
func NewShared(replica *store.Replica, registry *fanout.Registry) *Shared {
	return &Shared{replica: replica, registry: registry, mirrors: make(map[string]*mirror)}
}

// Close ends the share of the process; the store stays open. What is copied or
// mirrored is left as it is.
func (s *Shared) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.replica.Close(ctx)
	s.running.Wait()
	return err
}

// run runs f in a goroutine that Close waits for, unless it has been called.
func (s *Shared) run(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runLocked(f)
}

// runLocked is run; s.mu must be held.
func (s *Shared) runLocked(f func()) {
	if !s.closed {
		s.running.Go(f)
	}
}

// errStoreAway says that the store cannot be asked for what is not here.
var errStoreAway = errors.New("the store cannot be reached")

// find returns a response of this replica, or the mirror of another's, for a
// reader that calls release when it has left.
func (rt *Route) find(q *Request, id string, as fanout.Access) (response *fanout.Response, release func(), err error) {
	response, err = rt.Registry.Find(id, as)
	if err == nil {
		m := mirrorOf(response)
		if m == nil {
			return response, func() {}, nil
		}
		if m.shared.join(m) {
			return response, m.holding(q), nil
		}
		err = fanout.ErrUnknown
	}
	if rt.Shared == nil || !fanout.IsID(id) {
		return nil, nil, err
	}
	m, err := rt.Shared.find(q.Context(), id, as, err)
	if err != nil {
		return nil, nil, err
	}
	return m.response, m.holding(q), nil
}

// holding holds the store for a reader, as long as it reads, and returns what
// lets go of both.
func (m *mirror) holding(q *Request) (release func()) {
	keep := q.Keep()
	return func() {
		m.leave()
		keep()
	}
}

// beginTime is how long after its beginning a response may become known: its
// client need not wait for the store, and may be quicker here.
const beginTime = 150 * time.Millisecond

// find returns the mirror of a response, which the caller must leave. local is
// why the response is not here.
func (s *Shared) find(ctx context.Context, id string, as fanout.Access, local error) (*mirror, error) {
	meta, err := s.replica.Find(ctx, id, as)
	if errors.Is(err, store.ErrUnknown) && errors.Is(local, fanout.ErrUnknown) {
		select {
		case <-time.After(beginTime):
			meta, err = s.replica.Find(ctx, id, as)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case errors.Is(err, store.ErrUnknown):
		return nil, local
	case errors.Is(err, store.ErrExpired):
		return nil, err
	case err != nil:
		return nil, errStoreAway
	}
	return s.open(ctx, &meta, as)
}

// open returns the mirror of a response that may be read by the one who asks. The
// caller must leave it.
func (s *Shared) open(ctx context.Context, meta *store.Meta, as fanout.Access) (*mirror, error) {
	s.mu.Lock()
	m := s.mirrors[meta.ID]
	if m == nil {
		m = &mirror{shared: s, id: meta.ID, as: as, ready: make(chan struct{})}
		s.mirrors[meta.ID] = m
		s.runLocked(func() { m.fill(meta) })
	}
	m.readers++
	closed := s.closed
	s.mu.Unlock()
	if closed {
		m.leave()
		return nil, errStoreAway
	}
	select {
	case <-m.ready:
	case <-ctx.Done():
		m.leave()
		return nil, ctx.Err()
	}
	if m.err != nil {
		m.leave()
		return nil, m.err
	}
	return m, nil
}

// join adds a reader to a mirror, unless that is given up already.
func (s *Shared) join(m *mirror) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors[m.id] != m {
		return false
	}
	m.readers++
	return true
}

// forget lets the next reader make a mirror anew.
func (s *Shared) forget(m *mirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors[m.id] == m {
		delete(s.mirrors, m.id)
	}
}

// localOnly counts the copies that the store does not take, and logs where it is
// away and where it is back.
func (s *Shared) localOnly(local bool, logger *zap.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.local
	if local {
		s.local++
	} else {
		s.local--
	}
	switch {
	case before == 0:
		logger.Warn("the store takes no responses; they are local only")
	case s.local == 0:
		logger.Info("the store takes responses again")
	}
}

// mirror is a response of another replica as it is read here. The one response in
// the registry stands for all who read it, and goes with the last of them.
type mirror struct {
	shared   *Shared
	id       string
	as       fanout.Access
	readers  int           // guarded by shared.mu
	ready    chan struct{} // closed when the rest is set
	response *fanout.Response
	follower *store.Follower
	err      error
	known    int // index of the last event that the store had by then

	mu        sync.Mutex
	described bool // what is known beside the output is known here
	asking    bool // it is being asked for
	usage     *event.TokenUsage
	held      []event.Event
	end       *event.Event
}

// mirrorSize is about what a mirror takes beside its response, in bytes.
const mirrorSize = 1 << 10

// mirrorOf returns what a response mirrors; nil for one of this replica.
func mirrorOf(response *fanout.Response) *mirror {
	m, _ := response.Attachment.(*mirror)
	return m
}

// fill begins to copy the response from the store.
func (m *mirror) fill(meta *store.Meta) {
	defer close(m.ready)
	s := m.shared
	m.response, _, m.err = s.registry.Begin(m.id, fanout.Spec{
		Access: meta.Access, Dialect: meta.Dialect, Started: meta.Started, Keep: meta.Keep,
		Attachment: m, AttachmentSize: mirrorSize,
	})
	if m.err == nil {
		m.response.Admit()
		m.describe(&meta.About)
		var now store.Meta
		m.follower, now, m.err = s.replica.Follow(context.Background(), m.id, m.as, m)
		m.known = now.Last
	}
	if m.err == nil {
		return
	}
	s.forget(m)
	if m.response != nil {
		m.response.Discard(event.TerminalNoStream)
	}
	if !errors.Is(m.err, store.ErrUnknown) && !errors.Is(m.err, store.ErrExpired) && !errors.Is(m.err, fanout.ErrFull) {
		m.err = errStoreAway
	}
}

// leave tells that a reader is gone.
func (m *mirror) leave() {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.readers--; m.readers > 0 {
		return
	}
	if s.mirrors[m.id] == m {
		delete(s.mirrors, m.id)
	}
	s.runLocked(m.close)
}

// close ends the copying. Nobody reads the mirror any more.
func (m *mirror) close() {
	<-m.ready
	if m.follower != nil {
		m.follower.Close()
	}
	if m.response != nil {
		m.response.Discard(event.TerminalNoStream)
	}
}

// describe takes what is known beside the output. It reports whether that is
// anything.
func (m *mirror) describe(about *store.About) bool {
	if about.Format == "" {
		return false
	}
	m.response.Describe(about.Header, about.Format, about.Model)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.described, m.usage = true, about.Usage
	return true
}

// Model implements identity.
func (m *mirror) Model() string { return m.response.Model() }

// Usage implements identity.
func (m *mirror) Usage() *event.TokenUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

// Append implements store.Sink. The first frame of some dialects names the model,
// so that output waits until it is known.
func (m *mirror) Append(events []event.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.described {
		return m.append(events)
	}
	for i := range events {
		ev := events[i]
		ev.Text = bytes.Clone(ev.Text)
		m.held = append(m.held, ev)
	}
	m.askLocked()
	return nil
}

// append adds to the log. Where it takes no more, it had to make room for others.
func (m *mirror) append(events []event.Event) error {
	err := m.response.Append(events)
	if err != nil {
		m.shared.forget(m)
	}
	return err
}

// End implements store.Sink.
func (m *mirror) End(terminal *event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.described {
		m.response.End(terminal)
		return
	}
	m.end = terminal
	m.askLocked()
}

// Lost implements store.Sink: readers here learn that there is no response, or
// that its end is not to be had.
func (m *mirror) Lost(err error) {
	m.shared.forget(m)
	if errors.Is(err, store.ErrUnknown) {
		m.response.Discard(event.TerminalNoStream)
		return
	}
	m.response.End(event.TerminalInterrupted)
}

// askLocked asks what is known beside the output. m.mu must be held.
func (m *mirror) askLocked() {
	if m.asking {
		return
	}
	m.asking = true
	m.shared.run(func() {
		meta, err := m.shared.replica.Find(context.Background(), m.id, m.as)
		if err == nil && m.describe(&meta.About) {
			m.release()
			return
		}
		m.mu.Lock()
		m.described = true // its owner does not know it either, or it cannot be had
		m.mu.Unlock()
		m.release()
	})
}

// release adds what was held to the log.
func (m *mirror) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held) > 0 {
		_ = m.append(m.held)
		m.held = nil
	}
	if m.end != nil {
		m.response.End(m.end)
	}
}

// cursorPatience is how long a client waits for an event that it claims to have
// had and that the store does not have yet: what its replica has sent last is
// written within moments, unless it has died, which is known after its lease.
const cursorPatience = 12 * time.Second

// errInterrupted says that a response was interrupted, and that a client has had
// all that is left of it, or more. It may have had the end as well, and an
// EventSource must not be told of that again and again: so it is a status, which
// stops it as well as 204 does, and tells others what has happened.
var errInterrupted = errors.New("the response was interrupted")

// reach waits until the mirror has reached the index that a client has had. The
// error is fanout.ErrBadCursor for one that there never was, or errInterrupted.
func (m *mirror) reach(ctx context.Context, index int) error {
	timeout := time.After(cursorPatience)
	for {
		head, terminal := m.response.Head()
		switch {
		case terminal != nil && index >= head && fanout.StatusOf(terminal) == fanout.Interrupted:
			return errInterrupted
		case head >= index:
			return nil
		case terminal != nil:
			return fanout.ErrBadCursor
		}
		cursor, err := m.response.Open(head)
		if err != nil {
			return err
		}
		select {
		case <-cursor.Changed():
		case <-m.response.Discarded():
			return fanout.ErrUnknown
		case <-timeout:
			return fanout.ErrBadCursor
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Interface guard
var _ store.Sink = (*mirror)(nil)
