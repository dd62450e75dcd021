package store

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Log is a local log that a Writer copies. It is called from one goroutine at a
// time.
type Log interface {
	// Since appends to dst the events after an index, as many as there are
	// but no more than about so many bytes of text, and at least one if there
	// is one. The terminal event is the last. Their texts must stay as they
	// are until the next call.
	Since(dst []event.Event, index, bytes int) []event.Event
}

// Owner is told what becomes of the copy of a response. Its methods are called
// from the Writer's goroutines, one at a time, and must not block.
type Owner interface {
	// CancelRequested: somebody wants the response to be cancelled. It may be
	// called more than once.
	CancelRequested()
	// Superseded: another replica has ended the response. Nothing is written
	// any more, and nobody else will see what is still produced.
	Superseded()
	// LocalOnly tells that the store does not take the response, or takes it
	// again.
	LocalOnly(local bool)
}

// Bounds of what a Writer does.
const (
	callBytes    = 256 << 10 // text in one call, unless one event has more
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
	// Patience is how long a Writer tries to write the end of a response.
	Patience = 5 * time.Minute
)

// Writer copies the log of one response into a Store. Its methods never wait for
// the store, but for Wait and Close. It keeps nothing of the log: what the store
// does not take now is read from the log again.
type Writer struct {
	replica *Replica
	spec    Spec
	log     Log
	owner   Owner
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	running sync.WaitGroup
	done    chan struct{}

	mu sync.Mutex // guards what follows

	// what is to be written
	head     int // index of the last event that Appended told of
	bytes    int // text that came since the last call
	ended    bool
	endedAt  time.Time
	about    *About
	announce bool
	verify   bool // find out whether the store still has the response

	// what is written; the goroutine of a call may read it without mu
	ref       Ref // zero until the response has begun in the store
	written   int
	described *About
	announced bool

	// when the next call is made
	busy    bool // one is under way
	timer   *time.Timer
	batcher Batcher
	behind  bool // the last call has left something
	retry   time.Time
	backoff time.Duration // 0 while calls succeed
	local   bool
	err     error // valid when done is closed

	events []event.Event // of the goroutine of a call
	data   []byte
}

// newWriter returns the Writer of a response that is in the store already, or of
// one that is not, where ref is zero.
func newWriter(r *Replica, spec *Spec, ref Ref, log Log, owner Owner) *Writer {
	w := &Writer{replica: r, spec: *spec, ref: ref, log: log, owner: owner, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Appended tells that output events were added to the log.
func (w *Writer) Appended(events, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head += events
	w.bytes += bytes
	w.schedule()
}

// Ended tells that the terminal event was added to the log. It is written at once.
func (w *Writer) Ended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended, w.endedAt = true, time.Now()
		w.schedule()
	}
}

// Describe tells what has become known of the response; it is written with the
// next events.
func (w *Writer) Describe(about About) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.about = &about
}

// Announce tells the channel of the response that it has started.
func (w *Writer) Announce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announce = true
	w.schedule()
}

// check lets the Writer find out whether the store still has the response.
func (w *Writer) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verify = true
	w.schedule()
}

// Local reports whether the store does not take the response at the moment.
func (w *Writer) Local() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local
}

// Wait waits until the copy is complete, or will never be. The error is nil,
// ErrFenced where another replica has ended the response, the context's, or why
// the copy is incomplete.
func (w *Writer) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close lets go of a copy, complete or not, and waits for a call that is under
// way. An incomplete one is ended by a replica that follows it once the lease of
// this one is over.
func (w *Writer) Close() {
	w.cancel()
	w.mu.Lock()
	w.finish(ErrClosed)
	w.mu.Unlock()
	w.running.Wait()
	w.replica.forget(w)
}

// Discard takes back a response that turned out to be none, and closes the
// Writer. The error is the store's.
func (w *Writer) Discard(ctx context.Context) error {
	w.Close()
	if w.ref.ID == "" {
		return nil
	}
	return w.replica.discard(ctx, w.ref)
}

// finish ends the copying. The caller holds mu.
func (w *Writer) finish(err error) {
	if w.isDone() {
		return
	}
	w.err = err
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.local {
		w.local = false
		w.replica.metrics.Local(-1)
	}
	close(w.done)
}

func (w *Writer) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// schedule calls the store when it is time. The caller holds mu.
func (w *Writer) schedule() {
	if w.busy || w.isDone() {
		return
	}
	wait, ok := w.wait(time.Now())
	switch {
	case !ok:
	case wait <= 0:
		w.busy = true
		w.running.Go(w.work)
	case w.timer == nil:
		w.timer = time.AfterFunc(wait, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.schedule()
		})
	default:
		w.timer.Reset(wait)
	}
}

// wait returns how long the next call must wait; ok is false where there is
// nothing to do. The caller holds mu.
func (w *Writer) wait(now time.Time) (d time.Duration, ok bool) {
	if w.ref.ID == "" || w.ended || w.verify || w.behind || (w.announce && !w.announced) {
		ok = true
	} else {
		d, ok = w.batcher.Wait(now, w.head-w.written, w.bytes)
	}
	if w.backoff > 0 {
		d = max(d, w.retry.Sub(now))
	}
	return d, ok
}

// work calls the store for as long as there is something to do.
func (w *Writer) work() {
	for w.settle(w.step()) {
	}
}

// settle draws the consequences of a call, and reports whether the next one is
// due.
func (w *Writer) settle(err error) (more bool) {
	var tell func()
	w.mu.Lock()
	switch {
	case err == nil:
	case errors.Is(err, errComplete):
		w.finish(nil)
	case errors.Is(err, ErrFenced):
		w.finish(err)
		tell = w.owner.Superseded
	case errors.Is(err, ErrClosed), w.ctx.Err() != nil:
		w.finish(ErrClosed)
	case errors.Is(err, errShorter),
		w.ended && time.Since(w.endedAt) > min(Patience, max(w.spec.Keep, time.Second)):
		w.finish(err)
		w.replica.metrics.Incomplete()
		tell = w.abandon
	default:
		w.backoff = min(max(2*w.backoff, firstBackoff), lastBackoff)
		w.retry = time.Now().Add(w.backoff)
		tell = w.setLocal(true)
	}
	w.mu.Unlock()
	if tell != nil {
		tell()
	}
	if w.isDone() {
		w.replica.forget(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	wait, ok := w.wait(time.Now())
	if ok && wait <= 0 && !w.isDone() {
		return true
	}
	w.busy = false
	w.schedule()
	return false
}

// setLocal returns what must be called where that is news. The caller holds mu.
func (w *Writer) setLocal(local bool) (tell func()) {
	if w.local == local {
		return nil
	}
	w.local = local
	if local {
		w.replica.metrics.Local(1)
	} else {
		w.replica.metrics.Local(-1)
	}
	return func() { w.owner.LocalOnly(local) }
}

// succeeded takes in that a call has succeeded.
func (w *Writer) succeeded(change func()) {
	w.mu.Lock()
	change()
	w.backoff = 0
	tell := w.setLocal(false)
	w.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Errors of step that concern the Writer alone.
var (
	errComplete = errors.New("store: nothing is left to write")
	errShorter  = errors.New("store: the log is shorter than its copy")
)

// step makes the call that is most urgent.
func (w *Writer) step() error {
	w.mu.Lock()
	announce, verify := w.announce && !w.announced, w.verify
	ended := w.ended
	w.verify = false
	w.mu.Unlock()

	if w.ref.ID == "" {
		return w.begin()
	}
	if announce {
		err := w.replica.announce(w.ctx, w.ref)
		if err == nil {
			w.succeeded(func() { w.announced = true })
		}
		return w.lost(err)
	}
	w.mu.Lock()
	w.bytes = 0
	head := w.head
	w.mu.Unlock()
	w.events = w.log.Since(w.events[:0], w.written, callBytes)
	defer clear(w.events)
	switch {
	case len(w.events) > 0:
	case verify:
		return w.look()
	case ended:
		return errShorter
	default:
		return nil
	}
	return w.write(w.undescribed(), head)
}

// undescribed returns what has become known of the response and is not written,
// nil where there is nothing. It is asked after the log was read: what was known
// before an event was added is written with the event, or before.
func (w *Writer) undescribed() *About {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.about == w.described {
		return nil
	}
	return w.about
}

// begin makes the response known where the store could not be asked at first, or
// has lost it.
func (w *Writer) begin() error {
	begun, err := w.replica.begin(w.ctx, &w.spec)
	if err != nil {
		return err
	}
	if begun.Found != nil {
		// Another replica has made the same call meanwhile, and who asks by
		// the key gets that one. This one can be found by its id.
		w.spec.Call = fanout.Call{}
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ref, w.written, w.behind = begun.Ref, begun.Last, true
	w.announced, w.described = false, nil
	return nil
}

// look finds out whether the store still has the response.
func (w *Writer) look() error {
	meta, err := w.replica.find(w.ctx, w.ref.ID, w.ref.Access)
	switch {
	case errors.Is(err, ErrExpired):
		return ErrFenced
	case err != nil:
		return w.lost(err)
	case meta.Status != fanout.InProgress || meta.Fence != w.ref.Fence:
		return ErrFenced
	}
	w.succeeded(func() {})
	return nil
}

// lost prepares to begin again where the store has lost the response.
func (w *Writer) lost(err error) error {
	if errors.Is(err, ErrUnknown) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ref = Ref{}
	}
	return err
}

// write writes events, and with them the end where they have it. head is how far
// the log went when they were read from it: what has come since waits for its time.
func (w *Writer) write(about *About, head int) error {
	w.mu.Lock()
	w.batcher.Wrote(time.Now())
	w.mu.Unlock()
	first := w.written + 1
	data, err := Encode(w.data[:0], first, w.events)
	if err != nil {
		return err
	}
	w.data = data[:0]
	b := Batch{First: first, Last: w.written + len(w.events), Data: data, About: about}
	end := &w.events[len(w.events)-1]
	var ack Ack
	if end.Kind.IsTerminal() {
		ack, err = w.writeEnd(b, end)
	} else {
		ack, err = w.replica.append(w.ctx, w.ref, b)
	}
	switch {
	case errors.Is(err, ErrGap):
		return w.rewind(ack.Last)
	case err != nil:
		return w.lost(err)
	}
	w.replica.metrics.Batch(len(w.events), len(data))
	w.succeeded(func() {
		w.written, w.behind = b.Last, head > b.Last
		if about != nil {
			w.described = about
		}
		w.batcher.Follow(ack.Followed)
	})
	switch {
	case end.Kind.IsTerminal():
		return errComplete
	case ack.Cancel:
		w.owner.CancelRequested()
	}
	return nil
}

// writeEnd writes the last events and the log as a whole.
func (w *Writer) writeEnd(b Batch, end *event.Event) (Ack, error) {
	compact, err := Encode(nil, 1, w.log.Since(nil, 0, math.MaxInt))
	if err != nil {
		return Ack{}, err
	}
	return w.replica.finish(w.ctx, w.ref, Final{
		Batch:   b,
		Status:  fanout.StatusOf(end),
		Model:   w.model(),
		Compact: compact,
		Free:    end.Kind == event.Failed && b.Last == 1, // the request may be tried again
	})
}

func (w *Writer) model() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.about == nil {
		return ""
	}
	return w.about.Model
}

// rewind goes on where the store is: it may have lost the last batches in a
// failover.
func (w *Writer) rewind(last int) error {
	if last > w.written+len(w.events) {
		return ErrFenced // it has what was never in this log
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written, w.behind = last, true
	return nil
}

// abandon makes an incomplete copy one that says so, or else none at all.
func (w *Writer) abandon() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abandonTime)
	defer cancel()
	if w.ref.ID == "" {
		return
	}
	if err := w.replica.interrupt(ctx, w.ref, w.written, w.model()); err != nil {
		_ = w.replica.discard(ctx, w.ref) // it needs no memory; where it fails, the lease ends it
	}
}

// abandonTime bounds the last calls for a copy.
const abandonTime = 5 * time.Second
