package llmstream

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
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

func (*adminAPI) list(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(observe.List())
}

func (*adminAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	id, isCancel := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, adminPath+"/"), "/cancel")
	if !isCancel || r.Method != http.MethodPost {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("not found")}
	}
	if !observe.Cancel(id, fanout.ErrCancelled) {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no such stream is running")}
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// Interface guards
var _ caddy.AdminRouter = (*adminAPI)(nil)
