package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/ingest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// responseCopy is the copy of a response of this replica in the store. A nil one
// is that of a response without: its methods do nothing.
type responseCopy struct {
	*detached
	writer *store.Writer
	local  atomic.Bool // the store does not take it
}

// storeTimeout bounds what is asked of the store beside the way of a response.
const storeTimeout = 5 * time.Second

// share lets other replicas have the response. Where one of them has made the
// same call already, it returns the mirror of that response, which the caller
// must leave. Only a call with an idempotency key waits for the store, which may
// be away: then the response is here alone until it is back.
func (d *detached) share(spec *fanout.Spec) (*mirror, error) {
	s := d.route.Shared
	if s == nil {
		return nil, nil
	}
	out := &store.Spec{
		ID: d.response.ID(), Access: spec.Access, Call: spec.Call, Channel: spec.Channel,
		Dialect: spec.Dialect, Started: d.response.Started, Keep: spec.Keep,
	}
	var begun store.Begun
	if spec.Call.Key != "" {
		var err error
		begun, err = s.replica.Begin(d.Context(), out)
		if errors.Is(err, store.ErrMismatch) {
			return nil, err
		}
		if begun.Found != nil {
			return s.open(d.Context(), begun.Found, spec.Access)
		}
	}
	c := &responseCopy{detached: d}
	c.writer = s.replica.Write(out, begun.Ref, store.LogOf(&d.response.Stream), c)
	d.own.copy.Store(c)
	if _, terminal := d.response.Head(); terminal != nil {
		c.writer.Ended() // before there was a copy to tell
	}
	return nil, nil
}

// copyOf returns the copy of a response; nil where it has none.
func copyOf(response *fanout.Response) *responseCopy {
	if own, ok := response.Attachment.(*ownResponse); ok {
		return own.copy.Load()
	}
	return nil
}

// isFollowed reports whether clients of other replicas read the response. Where
// that is not known, they may.
func (d *detached) isFollowed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	followed, err := d.route.Shared.replica.Followed(ctx, d.response.ID())
	return followed || err != nil
}

// ended tells that the terminal event is there, or will be before the lock of the
// log is released.
func (c *responseCopy) ended() {
	if c != nil {
		c.writer.Ended()
	}
}

// describe tells what has become known of the response.
func (c *responseCopy) describe() {
	if c != nil {
		r := c.response
		c.writer.Describe(store.About{
			Format: r.Format(), Model: r.Model(), Header: r.Header(), Usage: c.own.record.Load().Usage(),
		})
	}
}

// announce tells the channel of the response that it has started.
func (c *responseCopy) announce() {
	if c != nil {
		c.writer.Announce()
	}
}

// discard takes the copy back.
func (c *responseCopy) discard() {
	if c == nil {
		return
	}
	c.route.Shared.run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		_ = c.writer.Discard(ctx) // else it is forgotten with the lease of this replica
		c.close()
	})
}

// wait waits until the copy is complete, or will never be.
func (c *responseCopy) wait() {
	if c == nil {
		return
	}
	_ = c.writer.Wait(context.Background()) // it is bounded, and has told of what went wrong
	c.close()
}

// close lets go of a copy that is complete, or will never be.
func (c *responseCopy) close() {
	c.writer.Close()
	c.LocalOnly(false)
	c.own.copy.Store(nil) // a kept response has no use for it
}

// isLocal reports whether other replicas do not have what is new of the response.
func (c *responseCopy) isLocal() bool { return c != nil && c.local.Load() }

// CancelRequested implements store.Owner.
func (c *responseCopy) CancelRequested() {
	end(c.response, event.TerminalCancelled, fanout.ErrCancelled)
}

// Superseded implements store.Owner.
func (c *responseCopy) Superseded() {
	end(c.response, event.TerminalInterrupted, ingest.ErrInterrupted)
}

// LocalOnly implements store.Owner.
func (c *responseCopy) LocalOnly(local bool) {
	if c.local.Swap(local) == local {
		return
	}
	if record := c.own.record.Load(); record != nil && local {
		record.WasLocal()
	}
	c.route.Shared.localOnly(local, c.route.Logger)
}

// log returns where the producer writes: the log, and word to its copy.
func (d *detached) log() ingest.Log {
	c := d.own.copy.Load()
	if c == nil {
		return d.response
	}
	return copiedLog{d.response, c.writer}
}

// copiedLog is a log that has a copy. Its end is told by whatever ends it.
type copiedLog struct {
	*fanout.Response
	writer *store.Writer
}

// Append implements ingest.Log.
func (l copiedLog) Append(events []event.Event) error {
	if err := l.Response.Append(events); err != nil {
		return err
	}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Text)
	}
	l.writer.Appended(len(events), bytes)
	return nil
}

// localOnlyField marks a response that other replicas do not have.
const localOnlyField = "X-Llm-Stream-Local-Only"

// Cancel ends a response on request, wherever it is produced, and returns its
// status: that of its end, or in_progress where that has not come in time.
func (rt *Route) Cancel(ctx context.Context, id string, as fanout.Access) (fanout.Status, error) {
	response, err := rt.Registry.Find(id, as)
	switch {
	case err == nil && mirrorOf(response) == nil:
		end(response, event.TerminalCancelled, fanout.ErrCancelled)
		_, terminal := response.Head()
		return fanout.StatusOf(terminal), nil
	case rt.Shared == nil || !fanout.IsID(id):
		return "", err
	}
	meta, remote := rt.Shared.replica.Cancel(ctx, id, as, cancelWait)
	switch {
	case remote == nil:
		return meta.Status, nil
	case errors.Is(remote, store.ErrUnknown) && err != nil:
		return "", err
	case errors.Is(remote, store.ErrUnknown), errors.Is(remote, store.ErrExpired):
		return "", remote
	}
	return "", errStoreAway
}

// cancelWait is how long a response of another replica may take to end after it
// is cancelled.
const cancelWait = 500 * time.Millisecond

// OfKey returns the ids of the responses of an idempotency key, running and kept;
// the error says that not all of them may be known.
func (rt *Route) OfKey(ctx context.Context, key string) (ids []string, err error) {
	known := make(map[string]bool)
	for _, response := range rt.Registry.FindKey(key) {
		ids = append(ids, response.ID())
		known[response.ID()] = true
	}
	if rt.Shared == nil {
		return ids, nil
	}
	remote, err := rt.Shared.replica.FindKey(ctx, key)
	if err != nil {
		return ids, errStoreAway
	}
	for _, id := range remote {
		if !known[id] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Current returns the id of the running response of a channel that began last;
// empty where none runs.
func (rt *Route) Current(ctx context.Context, name string, as fanout.Access) string {
	id, began := "", time.Time{}
	if response := rt.Registry.Current(name, as); response != nil {
		id, began = response.ID(), response.Started
	}
	if rt.Shared == nil {
		return id
	}
	meta, err := rt.Shared.replica.Current(ctx, store.Channel{Access: as, Name: name})
	if err == nil && (id == "" || meta.Started.After(began)) {
		return meta.ID
	}
	return id // what runs elsewhere is not known where the store is away
}

// Interface guards
var (
	_ store.Owner = (*responseCopy)(nil)
	_ ingest.Log  = copiedLog{}
)
