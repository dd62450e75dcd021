package llmstream

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

func init() { caddy.RegisterModule(new(adminAPI)) }

// adminAPI lists and cancels the responses that are running in this process,
// behind the security of Caddy's admin API:
//
//	GET  /llm_stream/streams
//	POST /llm_stream/streams/{id}/cancel
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.llm_stream",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

const adminPath = "/llm_stream/streams"

// Routes returns the routes of the API.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(a.list)},
		{Pattern: adminPath + "/", Handler: caddy.AdminHandlerFunc(a.cancel)},
	}
}

// runningStream is a running response as the API shows it.
type runningStream struct {
	ID         string        `json:"id"`
	State      fanout.Status `json:"state"`
	Format     string        `json:"format"`
	Model      string        `json:"model"`
	Emit       string        `json:"emit"`
	Channel    string        `json:"channel,omitempty"`
	AgeMS      int64         `json:"age_ms"`
	Events     int64         `json:"events"`
	Followers  int           `json:"followers"`
	SlowestLag int64         `json:"slowest_lag"` // events that the slowest follower has not had
}

func (*adminAPI) list(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	streams := runningStreams()
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(streams)
}

// runningStreams returns the running responses, the oldest first.
func runningStreams() []runningStream {
	followers := readers.count()
	running.Lock()
	streams := make([]runningStream, 0, len(running.records))
	for rec := range running.records {
		s := rec.snapshot()
		f := followers[rec.id]
		entry := runningStream{
			ID: rec.id, State: fanout.InProgress, Format: s.format, Model: s.model, Emit: rec.dialect, Channel: rec.channel,
			AgeMS: time.Since(rec.started).Milliseconds(), Events: rec.events.Load(), Followers: f.n,
		}
		if f.n > 0 {
			entry.SlowestLag = max(0, entry.Events-f.slowest)
		}
		streams = append(streams, entry)
	}
	running.Unlock()
	slices.SortFunc(streams, func(a, b runningStream) int { return int(b.AgeMS - a.AgeMS) })
	return streams
}

func (*adminAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	id, isCancel := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, adminPath+"/"), "/cancel")
	if !isCancel || r.Method != http.MethodPost {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("not found")}
	}
	running.Lock()
	var cancel func(error)
	for rec := range running.records {
		if rec.id == id {
			cancel = rec.cancel
		}
	}
	running.Unlock()
	if cancel == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no such stream is running")}
	}
	cancel(fanout.ErrCancelled)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// readers are the clients that read a response at this moment.
var readers = readerSet{set: make(map[*client]struct{})}

type readerSet struct {
	mu  sync.Mutex
	set map[*client]struct{}
}

// add adds a client, and returns what takes it off.
func (s *readerSet) add(c *client) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set[c] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.set, c)
	}
}

// followers are the clients of one response.
type followers struct {
	n       int
	slowest int64 // index of the last event that the slowest has had
}

// count returns the clients of each response.
func (s *readerSet) count() map[string]followers {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]followers)
	for c := range s.set {
		f, position := counts[c.id], c.position.Load()
		if f.n == 0 || position < f.slowest {
			f.slowest = position
		}
		f.n++
		counts[c.id] = f
	}
	return counts
}

// Interface guards
var _ caddy.AdminRouter = (*adminAPI)(nil)
