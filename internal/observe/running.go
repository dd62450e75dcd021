package observe

import (
	"slices"
	"sync"
	"time"
)

// running are the records of the responses of this process that run.
var running = recordSet{set: make(map[*Record]struct{})}

type recordSet struct {
	mu  sync.Mutex
	set map[*Record]struct{}
}

func (s *recordSet) add(rec *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set[rec] = struct{}{}
}

func (s *recordSet) remove(rec *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, rec)
}

// list returns the records, in no order.
func (s *recordSet) list() []*Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]*Record, 0, len(s.set))
	for rec := range s.set {
		records = append(records, rec)
	}
	return records
}

// Reader is a client that reads a response.
type Reader interface {
	// ResponseID is the id of the response.
	ResponseID() string
	// Position is the index of the last event that the client was sent.
	Position() int64
}

// readers are the clients that read a response at this moment.
var readers = struct {
	mu  sync.Mutex
	set map[Reader]struct{}
}{set: make(map[Reader]struct{})}

// AddReader counts a client in, and returns what counts it out.
func AddReader(r Reader) (remove func()) {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	readers.set[r] = struct{}{}
	return func() {
		readers.mu.Lock()
		defer readers.mu.Unlock()
		delete(readers.set, r)
	}
}

// Readers returns how many clients read a response at this moment.
func Readers() int {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	return len(readers.set)
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
func List() []Running {
	followers := followersByResponse()
	records := running.list()
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

func followersByResponse() map[string]followers {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	counts := make(map[string]followers)
	for r := range readers.set {
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
func Cancel(id string, cause error) bool {
	for _, rec := range running.list() {
		if rec.ID == id {
			rec.cancel(cause)
			return true
		}
	}
	return false
}
