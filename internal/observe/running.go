package observe

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Board knows which responses run at this moment, and who reads them. A process
// has one.
type Board struct {
	mu      sync.Mutex
	running map[*Record]struct{}

	readersMu sync.Mutex
	readers   map[Reader]struct{}
}

// NewBoard returns a Board on which nothing runs.
func NewBoard() *Board {
	return &Board{running: make(map[*Record]struct{}), readers: make(map[Reader]struct{})}
}

func (b *Board) add(rec *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[rec] = struct{}{}
}

func (b *Board) remove(rec *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, rec)
}

// records returns those of the responses that run, in no order.
func (b *Board) records() []*Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.running))
}

// Reader is a client that reads a response.
type Reader interface {
	// ResponseID is the id of the response.
	ResponseID() string
	// Position is the index of the last event that the client was sent.
	Position() int64
}

// AddReader counts a client in, and returns what counts it out.
func (b *Board) AddReader(r Reader) (remove func()) {
	b.readersMu.Lock()
	defer b.readersMu.Unlock()
	b.readers[r] = struct{}{}
	return func() {
		b.readersMu.Lock()
		defer b.readersMu.Unlock()
		delete(b.readers, r)
	}
}

// Readers returns how many clients read a response at this moment.
func (b *Board) Readers() int {
	b.readersMu.Lock()
	defer b.readersMu.Unlock()
	return len(b.readers)
}

// Running is a response that runs, for the admin API.
type Running struct {
	ID         string        `json:"id"`
	State      string        `json:"state"` // in_progress
	Format     string        `json:"format"`
	Model      string        `json:"model"`
	Emit       string        `json:"emit"`
	Channel    string        `json:"channel,omitempty"`
	AgeMS      int64         `json:"age_ms"`
	Events     int64         `json:"events"`
	Followers  int           `json:"followers"`
	SlowestLag int64         `json:"slowest_lag"` // events that the slowest follower has not had
	age        time.Duration // for the order
}

// List returns the responses that run, the oldest first.
func (b *Board) List() []Running {
	followers := b.followersByResponse()
	records := b.records()
	list := make([]Running, 0, len(records))
	for _, rec := range records {
		s := rec.Snapshot()
		entry := Running{
			ID: rec.ID, State: "in_progress", Format: s.Format, Model: s.Model, Emit: rec.Dialect, Channel: rec.Channel,
			AgeMS: s.Duration.Milliseconds(), Events: rec.events.Load(), age: time.Since(rec.Started),
		}
		if f := followers[rec.ID]; f.n > 0 {
			entry.Followers = f.n
			entry.SlowestLag = max(0, entry.Events-f.slowest)
		}
		list = append(list, entry)
	}
	slices.SortFunc(list, func(a, b Running) int { return int(b.age - a.age) })
	return list
}

// followers are the clients of one response.
type followers struct {
	n       int
	slowest int64 // index of the last event that the slowest was sent
}

func (b *Board) followersByResponse() map[string]followers {
	b.readersMu.Lock()
	defer b.readersMu.Unlock()
	counts := make(map[string]followers)
	for r := range b.readers {
		f, position := counts[r.ResponseID()], r.Position()
		if f.n == 0 || position < f.slowest {
			f.slowest = position
		}
		f.n++
		counts[r.ResponseID()] = f
	}
	return counts
}

// Cancel ends a response that runs. It reports false where none has this id.
func (b *Board) Cancel(id string, cause error) bool {
	for _, rec := range b.records() {
		if rec.ID == id {
			rec.cancel(cause)
			return true
		}
	}
	return false
}
