package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// beats is how often a lease is renewed while it lasts.
const beats = 7

// burials is how many responses of dead replicas are ended at a time.
const burials = 32

// Replica is the share of one process in a Store. It renews the lease that says
// that the process lives, hears what others want of its responses, and ends the
// responses of dead replicas that somebody here follows.
type Replica struct {
	store   Store
	name    string
	metrics Metrics
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	writers   map[string]*Writer // by response id
	followers map[*Follower]struct{}
}

// Join begins the share of a process. Metrics may be nil.
func Join(s Store, m Metrics) *Replica {
	if m == nil {
		m = NopMetrics{}
	}
	r := &Replica{
		store: s, name: fanout.NewID(), metrics: m,
		writers: make(map[string]*Writer), followers: make(map[*Follower]struct{}),
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(func() { r.beat(ctx) })
	return r
}

// Name returns the name of the replica, which is new for each process.
func (r *Replica) Name() string { return r.name }

// Begin makes a response known; see Store.Begin. It fills in spec.Replica. Where
// the error is none of this package's, the store cannot be asked: then the
// response may go on without, and a Writer that is made with a zero Ref makes it
// known later.
func (r *Replica) Begin(ctx context.Context, spec *Spec) (Begun, error) {
	spec.Replica = r.name
	return r.begin(ctx, spec)
}

// Write begins to copy a log. It must be told of everything that is added to the
// log from now on, and if the log is not empty, of what it has.
func (r *Replica) Write(spec *Spec, ref Ref, log Log, owner Owner) *Writer {
	spec.Replica = r.name
	w := newWriter(r, spec, ref, log, owner)
	r.mu.Lock()
	r.writers[spec.ID] = w
	closed := r.closed
	r.mu.Unlock()
	if closed {
		w.Close()
		return w
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedule()
	return w
}

// Find returns what is known of a response; see Store.Find.
func (r *Replica) Find(ctx context.Context, id string, as fanout.Access) (Meta, error) {
	return r.find(ctx, id, as)
}

// FindKey returns the responses of an idempotency key; see Store.FindKey.
func (r *Replica) FindKey(ctx context.Context, key string) (ids []string, err error) {
	defer r.measure("find_key", time.Now(), &err)
	return r.store.FindKey(ctx, key)
}

// Follow copies a response into a sink, from its start. When it returns, the sink
// may have had events already. The errors are those of Find.
func (r *Replica) Follow(ctx context.Context, id string, as fanout.Access, sink Sink) (*Follower, Meta, error) {
	meta, err := r.find(ctx, id, as)
	if err != nil {
		return nil, Meta{}, err
	}
	f := &Follower{replica: r, id: id, as: as, owner: meta.Replica, sink: sink, reading: true}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	var sub Subscription
	if meta.Status == fanout.InProgress {
		if sub, err = r.Subscribe(ctx, Topic{Kind: ResponseTopic, Name: id}, f.deliver); err != nil {
			f.cancel()
			return nil, Meta{}, err
		}
	}
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.followers[f] = struct{}{}
	}
	r.mu.Unlock()
	if closed {
		f.cancel()
		if sub != nil {
			sub.Close()
		}
		return nil, Meta{}, ErrClosed
	}
	f.start(sub)
	return f, meta, nil
}

// Followed reports whether another replica follows a response; see
// Store.Followed.
func (r *Replica) Followed(ctx context.Context, id string) (followed bool, err error) {
	defer r.measure("followed", time.Now(), &err)
	return r.store.Followed(ctx, id)
}

// Cancel asks for a response to be cancelled and waits for its end, but no longer
// than wait: the status in Meta says whether it has ended. The errors are those
// of Find.
func (r *Replica) Cancel(ctx context.Context, id string, as fanout.Access, wait time.Duration) (Meta, error) {
	changed := make(chan struct{}, 1)
	sub, err := r.Subscribe(ctx, Topic{Kind: ResponseTopic, Name: id}, func(Message) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return Meta{}, err
	}
	defer sub.Close()
	meta, err := r.cancelResponse(ctx, id, as)
	timeout := time.After(wait)
	for err == nil && meta.Status == fanout.InProgress {
		select {
		case <-changed:
			meta, err = r.find(ctx, id, as)
		case <-timeout:
			return meta, nil
		case <-ctx.Done():
			return meta, ctx.Err()
		}
	}
	return meta, err
}

// Channel returns a part of a channel; see Store.Channel.
func (r *Replica) Channel(ctx context.Context, ch Channel, after Position, limit int) (page ChannelPage, err error) {
	defer r.measure("channel", time.Now(), &err)
	return r.store.Channel(ctx, ch, after, limit)
}

// Current returns the running response of a channel that began last. The error is
// ErrUnknown where none runs.
func (r *Replica) Current(ctx context.Context, ch Channel) (Meta, error) {
	page, err := r.Channel(ctx, ch, "", 1)
	if err != nil {
		return Meta{}, err
	}
	for _, id := range slices.Backward(page.Running) {
		meta, err := r.find(ctx, id, ch.Access)
		switch {
		case errors.Is(err, ErrUnknown), errors.Is(err, ErrExpired):
		case err != nil:
			return Meta{}, err
		case meta.Status == fanout.InProgress:
			return meta, nil
		}
	}
	return Meta{}, ErrUnknown
}

// Subscribe subscribes to a topic; see Store.Subscribe.
func (r *Replica) Subscribe(ctx context.Context, t Topic, deliver func(Message)) (sub Subscription, err error) {
	defer r.measure("subscribe", time.Now(), &err)
	return r.store.Subscribe(ctx, t, deliver)
}

// Close ends the share. Writers and Followers are closed, the lease is given up,
// and so whoever follows an incomplete response elsewhere ends it soon. The Store
// stays open.
func (r *Replica) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	writers := make([]*Writer, 0, len(r.writers))
	for _, w := range r.writers {
		writers = append(writers, w)
	}
	followers := r.followed()
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
	for _, w := range writers {
		w.Close()
	}
	for _, f := range followers {
		f.mu.Lock()
		f.lose(ErrClosed)
		f.mu.Unlock()
		f.Close()
	}
	return r.store.Leave(ctx, r.name)
}

// followed returns the followers. The caller holds mu.
func (r *Replica) followed() []*Follower {
	followers := make([]*Follower, 0, len(r.followers))
	for f := range r.followers {
		followers = append(followers, f)
	}
	return followers
}

func (r *Replica) forget(w *Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writers[w.spec.ID] == w {
		delete(r.writers, w.spec.ID)
	}
}

func (r *Replica) unfollow(f *Follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
}

// hear takes a message for this replica.
func (r *Replica) hear(m Message) {
	if m.Reset {
		return // a wish to cancel is found with the next append
	}
	r.mu.Lock()
	w := r.writers[string(m.Data)]
	r.mu.Unlock()
	if w != nil {
		w.owner.CancelRequested()
	}
}

// beat renews the lease until the context ends.
func (r *Replica) beat(ctx context.Context) {
	var control Subscription
	lease := r.store.Lease()
	tick := time.NewTicker(lease / beats)
	defer tick.Stop()
	renewed := time.Now()
	trusted := renewed.Add(lease)
	for {
		if control == nil {
			control, _ = r.Subscribe(ctx, Topic{Kind: ReplicaTopic, Name: r.name}, r.hear)
		}
		beat, err := r.renew(ctx)
		now := time.Now()
		// A Beat that failed may have come to the store late and renewed what
		// had run out before: so the own clock counts as well.
		lapsed := err == nil && (beat.Lapsed || now.Sub(renewed) > lease)
		switch {
		case err != nil || lapsed:
			trusted = now.Add(lease) // the others' leases may have run out for the same reason
		case now.After(trusted) && len(beat.Missing) > 0:
			r.bury(beat.Missing)
		}
		if err == nil {
			renewed = now
		}
		if lapsed {
			r.check()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if control != nil {
				control.Close()
			}
			return
		}
	}
}

// renew renews the lease and asks for those of the replicas that are followed.
func (r *Replica) renew(ctx context.Context) (beat Beat, err error) {
	defer r.measure("beat", time.Now(), &err)
	var others []string
	r.mu.Lock()
	for f := range r.followers {
		if f.owner != r.name {
			others = append(others, f.owner)
		}
	}
	r.mu.Unlock()
	slices.Sort(others)
	return r.store.Beat(ctx, r.name, slices.Compact(others))
}

// check lets every Writer find out what has become of its copy while this replica
// had no lease.
func (r *Replica) check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.writers {
		w.check()
	}
}

// bury ends the responses of dead replicas that are followed here. One that was
// heard while its lease lasted is not dead, but too busy to renew it.
func (r *Replica) bury(missing []string) {
	r.mu.Lock()
	followers := r.followed()
	r.mu.Unlock()
	alive := make(map[string]bool)
	for _, f := range followers {
		if time.Since(f.lastHeard()) < r.store.Lease() {
			alive[f.owner] = true
		}
	}
	var running sync.WaitGroup
	places := make(chan struct{}, burials)
	for _, f := range followers {
		if alive[f.owner] || !slices.Contains(missing, f.owner) {
			continue
		}
		places <- struct{}{}
		running.Go(func() {
			f.bury()
			<-places
		})
	}
	running.Wait()
}

// interrupt ends a response whose producer is gone after the event last.
func (r *Replica) interrupt(ctx context.Context, ref Ref, last int, model string) error {
	data, err := Encode(nil, last+1, []event.Event{*event.TerminalInterrupted})
	if err != nil {
		return err
	}
	_, err = r.finish(ctx, ref, Final{
		Batch:  Batch{First: last + 1, Last: last + 1, Data: data},
		Status: fanout.Interrupted,
		Model:  model,
		Free:   last == 0,
	})
	return err
}

// The calls of the store, measured.

func (r *Replica) begin(ctx context.Context, spec *Spec) (begun Begun, err error) {
	defer r.measure("begin", time.Now(), &err)
	return r.store.Begin(ctx, spec)
}

func (r *Replica) announce(ctx context.Context, ref Ref) (err error) {
	defer r.measure("announce", time.Now(), &err)
	return r.store.Announce(ctx, ref)
}

func (r *Replica) append(ctx context.Context, ref Ref, b Batch) (ack Ack, err error) {
	defer r.measure("append", time.Now(), &err)
	return r.store.Append(ctx, ref, b)
}

func (r *Replica) finish(ctx context.Context, ref Ref, f Final) (ack Ack, err error) {
	defer r.measure("finish", time.Now(), &err)
	return r.store.Finish(ctx, ref, f)
}

func (r *Replica) discard(ctx context.Context, ref Ref) (err error) {
	defer r.measure("discard", time.Now(), &err)
	return r.store.Discard(ctx, ref)
}

func (r *Replica) find(ctx context.Context, id string, as fanout.Access) (meta Meta, err error) {
	defer r.measure("find", time.Now(), &err)
	return r.store.Find(ctx, id, as)
}

func (r *Replica) read(ctx context.Context, id string, after int) (page Page, err error) {
	defer r.measure("read", time.Now(), &err)
	return r.store.Read(ctx, id, after)
}

func (r *Replica) cancelResponse(ctx context.Context, id string, as fanout.Access) (meta Meta, err error) {
	defer r.measure("cancel", time.Now(), &err)
	return r.store.Cancel(ctx, id, as)
}

// measure tells of a call that began at start.
func (r *Replica) measure(name string, start time.Time, err *error) {
	failed := *err
	if isAnswer(failed) {
		failed = nil
	}
	r.metrics.Call(name, time.Since(start), failed)
}

// isAnswer reports whether an error is what the Store has answered, or none of
// its doing.
func isAnswer(err error) bool {
	for _, answer := range []error{ErrUnknown, ErrExpired, ErrMismatch, ErrFenced, ErrGap, ErrClosed, context.Canceled} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}
