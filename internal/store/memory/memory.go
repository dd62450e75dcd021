// Package memory is a store.Store inside one process, for tests: the Replicas
// that join it stand for processes, and it stands for the rules that every Store
// must keep, in the fewest words. Nothing is written in it but what was appended.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// remember is how long the id of a response that is no longer kept is known.
const remember = 24 * time.Hour

// maxNotices is how many notices of a channel are kept.
const maxNotices = 4096

// Store is a store.Store in memory.
type Store struct {
	lease time.Duration

	mu        sync.Mutex
	closed    bool
	responses map[string]*response
	calls     map[fanout.Call]string // ids, by a Call without Body
	channels  map[store.Channel]*channel
	leases    map[string]time.Time // when they end
	topics    map[store.Topic]map[*subscription]struct{}
}

type response struct {
	meta    store.Meta
	call    fanout.Call
	cancel  bool
	batches [][]byte
	firsts  []int
	expires time.Time // zero while it runs
}

type channel struct {
	epoch   string
	notices []store.Notice
	seq     uint64
	running []string
}

// New returns an empty Store whose leases last so long.
func New(lease time.Duration) *Store {
	return &Store{
		lease:     lease,
		responses: make(map[string]*response),
		calls:     make(map[fanout.Call]string),
		channels:  make(map[store.Channel]*channel),
		leases:    make(map[string]time.Time),
		topics:    make(map[store.Topic]map[*subscription]struct{}),
	}
}

// lock begins a call, where the Store is open and the context goes on.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context, spec *store.Spec) (store.Begun, error) {
	if err := s.lock(ctx); err != nil {
		return store.Begun{}, err
	}
	defer s.mu.Unlock()
	if r := s.responses[spec.ID]; r != nil {
		return store.Begun{Ref: r.meta.Ref, Last: r.meta.Last}, nil
	}
	call := spec.Call
	call.Body = ""
	if r, err := s.find(s.calls[call]); call.Key != "" && err == nil {
		if r.call.Body != spec.Call.Body {
			return store.Begun{}, store.ErrMismatch
		}
		return store.Begun{Found: &r.meta}, nil
	}
	r := &response{call: spec.Call, meta: store.Meta{
		Ref: store.Ref{
			ID: spec.ID, Fence: 1, Replica: spec.Replica, Keep: spec.Keep, Access: spec.Access,
		},
		Dialect: spec.Dialect, Started: spec.Started, Status: fanout.InProgress, Body: spec.Call.Body,
	}}
	if spec.Channel != "" {
		r.meta.Channel = store.Channel{Access: spec.Access, Name: spec.Channel}
	}
	s.responses[spec.ID] = r
	if call.Key != "" {
		s.calls[call] = spec.ID
	}
	return store.Begun{Ref: r.meta.Ref}, nil
}

// find returns a response that can be read. The caller holds mu.
func (s *Store) find(id string) (*response, error) {
	r := s.responses[id]
	now := time.Now()
	switch {
	case r == nil, r.over() && now.After(r.expires.Add(remember)):
		return nil, store.ErrUnknown
	case r.over() && now.After(r.expires):
		return r, store.ErrExpired
	}
	return r, nil
}

func (r *response) over() bool { return !r.expires.IsZero() }

// Announce implements store.Store.
func (s *Store) Announce(ctx context.Context, ref store.Ref) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	r, err := s.find(ref.ID)
	if err != nil {
		return err
	}
	ch := s.channels[ref.Channel]
	if ref.Channel.Name == "" || (ch != nil && slices.Contains(ch.running, ref.ID)) {
		return nil
	}
	if ch == nil {
		ch = &channel{epoch: fanout.NewID()}
		s.channels[ref.Channel] = ch
	}
	ch.running = append(ch.running, ref.ID)
	s.notice(ref.Channel, store.Notice{
		Kind: store.Started, ID: ref.ID, At: time.UnixMilli(r.meta.Started.UnixMilli()),
	})
	return nil
}

// notice adds a notice about a response that was announced. The caller holds mu.
func (s *Store) notice(name store.Channel, n store.Notice) {
	ch := s.channels[name]
	if ch == nil || !slices.Contains(ch.running, n.ID) {
		return
	}
	if n.Kind == store.Ended {
		ch.running = slices.DeleteFunc(ch.running, func(id string) bool { return id == n.ID })
	}
	ch.seq++
	n.Position = store.NewPosition(ch.epoch, ch.seq)
	ch.notices = append(ch.notices, n)
	if len(ch.notices) > maxNotices {
		ch.notices = ch.notices[1:]
	}
	s.send(store.Topic{Kind: store.ChannelTopic, Channel: name}, store.Message{
		Data: n.Append([]byte(n.Position + " ")),
	})
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, ref store.Ref, b store.Batch) (store.Ack, error) {
	if err := s.lock(ctx); err != nil {
		return store.Ack{}, err
	}
	defer s.mu.Unlock()
	before := s.last(ref.ID)
	ack, err := s.append(ref, b)
	if err == nil && ack.Last > before {
		s.notice(ref.Channel, store.Notice{Kind: store.Said, ID: ref.ID, First: b.First, Last: b.Last})
	}
	return ack, err
}

// last returns the index of the last event of a response. The caller holds mu.
func (s *Store) last(id string) int {
	if r := s.responses[id]; r != nil {
		return r.meta.Last
	}
	return 0
}

// append adds a batch. The caller holds mu.
func (s *Store) append(ref store.Ref, b store.Batch) (store.Ack, error) {
	r, err := s.find(ref.ID)
	switch {
	case r == nil:
		return store.Ack{}, store.ErrUnknown
	case err != nil, r.over(), r.meta.Fence != ref.Fence:
		return store.Ack{}, store.ErrFenced
	}
	if b.About != nil {
		r.meta.About = *b.About
	}
	topic := store.Topic{Kind: store.ResponseTopic, Name: ref.ID}
	ack := store.Ack{Last: r.meta.Last, Cancel: r.cancel, Followed: len(s.topics[topic]) > 0}
	switch {
	case b.Last <= r.meta.Last:
		return ack, nil
	case b.First != r.meta.Last+1:
		return ack, store.ErrGap
	}
	r.meta.Last, ack.Last = b.Last, b.Last
	r.batches = append(r.batches, slices.Clone(b.Data))
	r.firsts = append(r.firsts, b.First)
	s.send(topic, store.Message{Data: b.Data, At: time.Now()})
	return ack, nil
}

// Finish implements store.Store.
func (s *Store) Finish(ctx context.Context, ref store.Ref, f store.Final) (store.Ack, error) {
	if err := s.lock(ctx); err != nil {
		return store.Ack{}, err
	}
	defer s.mu.Unlock()
	if r := s.responses[ref.ID]; r != nil && r.over() && r.meta.Replica == ref.Replica {
		return store.Ack{Last: r.meta.Last}, nil
	}
	ack, err := s.append(ref, f.Batch)
	if err != nil {
		return ack, err
	}
	r := s.responses[ref.ID]
	r.meta.Fence++
	r.meta.Status, r.meta.Replica = f.Status, ref.Replica
	r.expires = time.Now().Add(r.meta.Keep)
	if f.Compact != nil {
		r.batches, r.firsts = [][]byte{slices.Clone(f.Compact)}, []int{1}
	}
	if f.Free {
		s.free(r)
	}
	s.notice(ref.Channel, store.Notice{
		Kind: store.Ended, ID: ref.ID, First: f.First, Last: f.Last, Status: f.Status, Model: f.Model,
	})
	return ack, nil
}

// free lets a call be made again. The caller holds mu.
func (s *Store) free(r *response) {
	call := r.call
	call.Body = ""
	if s.calls[call] == r.meta.ID {
		delete(s.calls, call)
	}
}

// Discard implements store.Store.
func (s *Store) Discard(ctx context.Context, ref store.Ref) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	r := s.responses[ref.ID]
	if r == nil {
		return nil
	}
	s.free(r)
	delete(s.responses, ref.ID)
	s.send(store.Topic{Kind: store.ResponseTopic, Name: ref.ID}, store.Message{Gone: true})
	s.notice(ref.Channel, store.Notice{
		Kind: store.Ended, ID: ref.ID, Status: fanout.Broken,
	})
	return nil
}

// Find implements store.Store.
func (s *Store) Find(ctx context.Context, id string, as fanout.Access) (store.Meta, error) {
	if err := s.lock(ctx); err != nil {
		return store.Meta{}, err
	}
	defer s.mu.Unlock()
	r, err := s.findAs(id, as)
	if err != nil {
		return store.Meta{}, err
	}
	return r.meta, nil
}

// findAs is find for somebody. The caller holds mu.
func (s *Store) findAs(id string, as fanout.Access) (*response, error) {
	r, err := s.find(id)
	if r == nil || r.meta.Access.Scope != as.Scope ||
		(r.meta.Access.Owner != "" && r.meta.Access.Owner != as.Owner) {
		return nil, store.ErrUnknown
	}
	return r, err
}

// FindKey implements store.Store.
func (s *Store) FindKey(ctx context.Context, key string) ([]string, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var ids []string
	for call, id := range s.calls {
		if _, err := s.find(id); call.Key == key && key != "" && err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, id string, after int) (store.Page, error) {
	if err := s.lock(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.mu.Unlock()
	r, err := s.find(id)
	if err != nil {
		return store.Page{}, err
	}
	i, found := slices.BinarySearch(r.firsts, after+1)
	if !found && i > 0 {
		i--
	}
	return store.Page{Batches: slices.Clone(r.batches[i:]), Last: r.meta.Last, Status: r.meta.Status}, nil
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, id string, as fanout.Access) (store.Meta, error) {
	if err := s.lock(ctx); err != nil {
		return store.Meta{}, err
	}
	defer s.mu.Unlock()
	r, err := s.findAs(id, as)
	if err != nil {
		return store.Meta{}, err
	}
	if !r.over() {
		r.cancel = true
		s.send(store.Topic{Kind: store.ReplicaTopic, Name: r.meta.Replica}, store.Message{Data: []byte(id)})
	}
	return r.meta, nil
}

// Channel implements store.Store.
func (s *Store) Channel(ctx context.Context, name store.Channel, after store.Position, limit int) (store.ChannelPage, error) {
	if err := s.lock(ctx); err != nil {
		return store.ChannelPage{}, err
	}
	defer s.mu.Unlock()
	ch := s.channels[name]
	var from uint64
	if after != "" {
		epoch, number, err := after.Parse()
		switch {
		case err != nil:
			return store.ChannelPage{}, err
		case ch == nil, epoch != ch.epoch:
			return store.ChannelPage{}, store.ErrExpired
		case number > ch.seq:
			return store.ChannelPage{}, store.ErrUnknown
		}
		from = number
	}
	if ch == nil {
		return store.ChannelPage{}, nil
	}
	lost := ch.seq - uint64(len(ch.notices))
	switch {
	case after == "":
		from = lost
	case from < lost:
		return store.ChannelPage{}, store.ErrExpired
	}
	notices := ch.notices[from-lost:]
	return store.ChannelPage{
		Notices: slices.Clone(notices[:min(limit, len(notices))]),
		Head:    store.NewPosition(ch.epoch, ch.seq),
		Running: slices.Clone(ch.running),
	}, nil
}

// Beat implements store.Store.
func (s *Store) Beat(ctx context.Context, replica string, others []string) (store.Beat, error) {
	if err := s.lock(ctx); err != nil {
		return store.Beat{}, err
	}
	defer s.mu.Unlock()
	now := time.Now()
	beat := store.Beat{Lapsed: now.After(s.leases[replica])}
	s.leases[replica] = now.Add(s.lease)
	for _, other := range others {
		if now.After(s.leases[other]) {
			beat.Missing = append(beat.Missing, other)
		}
	}
	return beat, nil
}

// Lease implements store.Store.
func (s *Store) Lease() time.Duration { return s.lease }

// Leave implements store.Store.
func (s *Store) Leave(ctx context.Context, replica string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.leases, replica)
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.topics)
	return nil
}

// subscription is the place of one subscriber.
type subscription struct {
	store   *Store
	topic   store.Topic
	deliver func(store.Message)
}

// Subscribe implements store.Store. deliver is called with the lock of the Store,
// so that messages come in the order of what they tell of.
func (s *Store) Subscribe(ctx context.Context, t store.Topic, deliver func(store.Message)) (store.Subscription, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	sub := &subscription{store: s, topic: t, deliver: deliver}
	if s.topics[t] == nil {
		s.topics[t] = make(map[*subscription]struct{})
	}
	s.topics[t][sub] = struct{}{}
	return sub, nil
}

// Followed implements store.Store.
func (s *Store) Followed(ctx context.Context, id string) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return len(s.topics[store.Topic{Kind: store.ResponseTopic, Name: id}]) > 0, nil
}

// Close implements store.Subscription.
func (sub *subscription) Close() {
	s := sub.store
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics[sub.topic], sub)
	if len(s.topics[sub.topic]) == 0 {
		delete(s.topics, sub.topic)
	}
}

// send sends a message. The caller holds mu.
func (s *Store) send(t store.Topic, m store.Message) {
	for sub := range s.topics[t] {
		sub.deliver(m)
	}
}

// Interface guards
var _ store.Store = (*Store)(nil)
