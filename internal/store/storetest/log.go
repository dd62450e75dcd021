package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Log is a local log in the simplest form: what a store.Writer copies, and what a
// store.Follower fills. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	events []event.Event
	err    error
	over   chan struct{} // closed after the terminal event, or Lost
	grown  chan struct{} // closed with the next event
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{over: make(chan struct{}), grown: make(chan struct{})} }

// Add adds an event, the terminal one too.
func (l *Log) Add(ev event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(ev)
}

func (l *Log) add(ev event.Event) {
	ev.Text = bytes.Clone(ev.Text)
	l.events = append(l.events, ev)
	close(l.grown)
	l.grown = make(chan struct{})
	if ev.Kind.IsTerminal() {
		close(l.over)
	}
}

// Since implements store.Log.
func (l *Log) Since(dst []event.Event, index, limit int) []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ev := range l.events[min(index, len(l.events)):] {
		if limit -= len(ev.Text); limit < 0 && len(dst) > 0 {
			break
		}
		dst = append(dst, ev)
	}
	return dst
}

// Append implements store.Sink.
func (l *Log) Append(events []event.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		l.add(events[i])
	}
	return nil
}

// End implements store.Sink.
func (l *Log) End(terminal *event.Event) { l.Add(*terminal) }

// Lost implements store.Sink.
func (l *Log) Lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	close(l.over)
}

// Over returns a channel that is closed when nothing more will come.
func (l *Log) Over() <-chan struct{} { return l.over }

// Err returns what Lost was told.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Len returns how many events there are, and a channel that is closed with the
// next one.
func (l *Log) Len() (n int, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events), l.grown
}

// Terminal returns the terminal event, nil while the log goes on.
func (l *Log) Terminal() *event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.events); n > 0 && l.events[n-1].Kind.IsTerminal() {
		return &l.events[n-1]
	}
	return nil
}

// Diff says where the log is not a prefix of another one, empty if it is.
func (l *Log) Diff(whole *Log) string {
	have, want := l.Since(nil, 0, 1<<60), whole.Since(nil, 0, 1<<60)
	if len(have) > len(want) {
		return fmt.Sprintf("%d events of %d", len(have), len(want))
	}
	for i := range have {
		if a, b := describe(&have[i]), describe(&want[i]); a != b {
			return fmt.Sprintf("event %d is %s, not %s", i+1, a, b)
		}
	}
	return ""
}

// describe tells all of an event.
func describe(ev *event.Event) string {
	flat := *ev
	flat.Text = append([]byte{}, ev.Text...) // no text and an empty one are the same
	text, err := json.Marshal(&flat)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Owner is a store.Owner that remembers.
type Owner struct {
	// Cancelled and Fenced get a value where that is asked for.
	Cancelled, Fenced chan struct{}

	mu     sync.Mutex
	locals int
}

// NewOwner returns an Owner.
func NewOwner() *Owner {
	return &Owner{Cancelled: make(chan struct{}, 1), Fenced: make(chan struct{}, 1)}
}

// CancelRequested implements store.Owner.
func (o *Owner) CancelRequested() {
	select {
	case o.Cancelled <- struct{}{}:
	default:
	}
}

// Superseded implements store.Owner.
func (o *Owner) Superseded() {
	select {
	case o.Fenced <- struct{}{}:
	default:
	}
}

// LocalOnly implements store.Owner.
func (o *Owner) LocalOnly(local bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if local {
		o.locals++
	}
}

// Locals returns how often the store did not take the response.
func (o *Owner) Locals() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locals
}

// Interface guards
var (
	_ store.Log   = (*Log)(nil)
	_ store.Sink  = (*Log)(nil)
	_ store.Owner = (*Owner)(nil)
)
