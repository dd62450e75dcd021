package llmstream

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

func init() { caddy.RegisterModule(new(adminAPI)) }

// adminAPI counts, lists and cancels the responses that are running in this process,
// behind the security of Caddy's admin API:
//
//	GET  /llm_stream/state
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
		{Pattern: "/llm_stream/state", Handler: caddy.AdminHandlerFunc(a.state)},
		{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(a.list)},
		{Pattern: adminPath + "/", Handler: caddy.AdminHandlerFunc(a.cancel)},
	}
}

// adminState is what this process holds for clients and responses.
type adminState struct {
	Clients int64 `json:"clients"`         // open client requests
	Readers int   `json:"readers"`         // clients that read a response
	Streams int   `json:"streams"`         // generations that hold an upstream call
	Queued  int   `json:"queued"`          // requests that wait for a place
	Running int   `json:"running"`         // responses with resume that run
	Kept    int   `json:"kept"`            // responses with resume that have ended and can be read
	Drained int   `json:"drained_members"` // clients and producers that a drain would end
}

// stateNow counts what is held at this moment.
func stateNow() (adminState, error) {
	registry, err := acquireRegistry()
	if err != nil {
		return adminState{}, err
	}
	defer func() { _ = releaseRegistry() }()
	s := adminState{
		Clients: process.clients.Load(), Readers: process.board.Readers(), Streams: len(process.board.List()),
		Queued: queuedRequests(), Drained: process.drainers.members(),
	}
	s.Running, s.Kept = registry.Len()
	return s, nil
}

func (*adminAPI) state(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	s, err := stateNow()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(s)
}

func (*adminAPI) list(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(process.board.List())
}

func (*adminAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	id, isCancel := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, adminPath+"/"), "/cancel")
	if !isCancel || r.Method != http.MethodPost {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("not found")}
	}
	if !process.board.Cancel(id, fanout.ErrCancelled) {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no such stream is running")}
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// Interface guards
var _ caddy.AdminRouter = (*adminAPI)(nil)
