package redis

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// subscribeMany is how many channels one SUBSCRIBE names.
const subscribeMany = 512

// hub has all subscriptions of a Store on one connection. Its goroutine makes the
// connection anew when it is lost, and makes what is subscribed agree with what
// is wanted; who subscribes waits for Redis' acknowledgment.
type hub struct {
	connect *connector
	cancel  context.CancelFunc
	kick    chan struct{} // something is wanted that is not so yet
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	topics map[string]*topic
}

// doubt is how long nothing may come on a topic in a cluster, whose bus gives no
// guarantee, before its subscribers are to look for themselves. Elsewhere, and
// where something comes, a loss is noticed.
const doubt = 5 * time.Second

// topic is a channel of Redis. It is guarded by hub.mu; subscribers is never
// changed, but replaced.
type topic struct {
	subscribers []*subscriber
	sent        bool          // it is subscribed, or will be when Redis answers
	acks        int           // SUBSCRIBEs that Redis has not answered
	ready       chan struct{} // closed when messages come
	lost        bool          // messages came before the connection was lost
	silent      bool          // nothing came since the last tick of doubt
}

// subscriber is a store.Subscription.
type subscriber struct {
	hub     *hub
	name    string
	kind    store.TopicKind
	mu      sync.Mutex // held during deliver
	deliver func(store.Message)
	closed  bool
}

func newHub(c *connector) *hub {
	h := &hub{connect: c, kick: make(chan struct{}, 1), topics: make(map[string]*topic)}
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	h.running.Go(func() { h.run(ctx) })
	return h
}

// close ends all subscriptions.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	var all []*subscriber
	for _, t := range h.topics {
		all = append(all, t.subscribers...)
	}
	clear(h.topics)
	h.mu.Unlock()
	for _, s := range all {
		s.stop()
	}
	h.cancel()
	h.running.Wait()
}

// subscribe adds a subscriber and waits until its messages come.
func (h *hub) subscribe(ctx context.Context, name string, kind store.TopicKind, deliver func(store.Message)) (*subscriber, error) {
	s := &subscriber{hub: h, name: name, kind: kind, deliver: deliver}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, store.ErrClosed
	}
	t := h.topics[name]
	if t == nil {
		t = &topic{ready: make(chan struct{})}
		h.topics[name] = t
	}
	t.subscribers = append(slices.Clip(t.subscribers), s)
	for {
		ready := t.ready
		h.wake()
		h.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			s.Close()
			return nil, ctx.Err()
		}
		h.mu.Lock()
		if ready == t.ready {
			h.mu.Unlock()
			return s, nil
		}
		// the connection was lost again meanwhile
	}
}

// Close implements store.Subscription.
func (s *subscriber) Close() {
	s.stop()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[s.name]; t != nil {
		t.subscribers = slices.DeleteFunc(slices.Clone(t.subscribers), func(o *subscriber) bool { return o == s })
		if len(t.subscribers) == 0 {
			h.wake()
		}
	}
}

func (s *subscriber) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// send delivers a message.
func (s *subscriber) send(m store.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.deliver(m)
	}
}

// wake lets the goroutine of the hub look at what is wanted.
func (h *hub) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// run keeps the connection until the context ends.
func (h *hub) run(ctx context.Context) {
	for {
		_ = h.session(ctx) // those who call the store see the error too
		h.reset()
		select {
		case <-time.After(redial):
		case <-ctx.Done():
			return
		}
	}
}

// session uses one connection until it is lost.
func (h *hub) session(ctx context.Context) error {
	client, err := h.connect.get(ctx)
	if err != nil {
		return err
	}
	conn, release := client.Dedicate()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: h.message, OnSubscription: h.acknowledge})
	defer func() {
		release()
		for range lost { // after it, no hook is called
		}
	}()
	var ticks <-chan time.Time
	if !together(client) {
		ticker := time.NewTicker(doubt)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		if err := h.reconcile(ctx, conn); err != nil {
			conn.Close()
			return err
		}
		select {
		case <-h.kick:
		case <-ticks:
			h.doubt()
		case err := <-lost:
			return err
		case <-ctx.Done():
			conn.Close()
			return ctx.Err()
		}
	}
}

// reconcile tells Redis what is wanted and no longer wanted.
func (h *hub) reconcile(ctx context.Context, conn rueidis.DedicatedClient) error {
	var subscribe, unsubscribe []string
	h.mu.Lock()
	for name, t := range h.topics {
		switch wanted := len(t.subscribers) > 0; {
		case wanted && !t.sent:
			t.sent = true
			t.acks++
			subscribe = append(subscribe, name)
		case !wanted && t.sent:
			t.sent = false
			t.unready()
			unsubscribe = append(unsubscribe, name)
		}
		if len(t.subscribers) == 0 && t.acks == 0 {
			delete(h.topics, name)
		}
	}
	h.mu.Unlock()
	for names := range slices.Chunk(unsubscribe, subscribeMany) {
		if err := conn.Do(ctx, conn.B().Unsubscribe().Channel(names...).Build()).Error(); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(subscribe, subscribeMany) {
		if err := conn.Do(ctx, conn.B().Subscribe().Channel(names...).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// unready lets subscribers wait for messages. The caller holds hub.mu.
func (t *topic) unready() {
	if t.isReady() {
		t.ready = make(chan struct{})
	}
}

func (t *topic) isReady() bool {
	select {
	case <-t.ready:
		return true
	default:
		return false
	}
}

// reset forgets what the connection that was lost had.
func (h *hub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.lost = t.lost || t.isReady()
		t.unready()
		t.sent, t.acks = false, 0
	}
}

// acknowledge takes Redis' answer to a SUBSCRIBE.
func (h *hub) acknowledge(a rueidis.PubSubSubscription) {
	if a.Kind != "subscribe" {
		return
	}
	h.mu.Lock()
	t := h.topics[a.Channel]
	if t == nil || t.acks == 0 {
		h.mu.Unlock()
		return
	}
	t.acks--
	var missed []*subscriber
	if t.acks == 0 && t.sent {
		if t.lost {
			missed = t.subscribers
		}
		t.lost = false
		if !t.isReady() {
			close(t.ready)
		}
	}
	h.wakeIfUnused(t)
	h.mu.Unlock()
	for _, s := range missed {
		s.send(store.Message{Reset: true})
	}
}

// doubt lets the subscribers of silent topics look for themselves.
func (h *hub) doubt() {
	var doubtful []*subscriber
	h.mu.Lock()
	for _, t := range h.topics {
		if t.silent && t.isReady() {
			doubtful = append(doubtful, t.subscribers...)
		}
		t.silent = true
	}
	h.mu.Unlock()
	for _, s := range doubtful {
		s.send(store.Message{Reset: true})
	}
}

// wakeIfUnused lets the hub forget a topic. The caller holds mu.
func (h *hub) wakeIfUnused(t *topic) {
	if len(t.subscribers) == 0 {
		h.wake()
	}
}

// message passes a message on.
func (h *hub) message(m rueidis.PubSubMessage) {
	h.mu.Lock()
	var subscribers []*subscriber
	if t := h.topics[m.Channel]; t != nil {
		subscribers, t.silent = t.subscribers, false
	}
	h.mu.Unlock()
	if len(subscribers) == 0 {
		return
	}
	plain := parseMessage([]byte(m.Message), subscribers[0].kind)
	for _, s := range subscribers {
		s.send(plain)
	}
}

// stampSize is the length of the time before a batch in a message.
const stampSize = 8

// parseMessage reads what a script has published. A message of a response without
// a time stamp, but for an empty one, makes its subscribers read the log: it is
// none of ours.
func parseMessage(data []byte, kind store.TopicKind) store.Message {
	switch {
	case kind != store.ResponseTopic:
		return store.Message{Data: data}
	case len(data) == 0:
		return store.Message{Gone: true}
	case len(data) < stampSize:
		return store.Message{Reset: true}
	}
	ms := binary.BigEndian.Uint64(data)
	return store.Message{Data: data[stampSize:], At: time.UnixMilli(int64(ms))} //nolint:gosec // a wrong time is shown, and does no harm
}

// stamp is the time before a batch in a message.
func stamp(now time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))) //nolint:gosec // it is after 1970
}

// Interface guards
var _ store.Subscription = (*subscriber)(nil)
