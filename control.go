package llmstream

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/relay"
)

func init() { caddy.RegisterModule(new(Control)) }

// Control serves the control endpoints of resume: following a response or a
// channel, and cancelling. The Caddyfile directive llm_stream puts it before
// its handler, so that it is rarely written by hand. Below the prefix:
//
//	GET    /streams/{id}        the response: frames, or a snapshot as JSON
//	DELETE /streams/{id}        cancel
//	POST   /cancel/{id}         cancel
//	POST   /cancel?idempotency_key=…
//	GET    /channels/{channel}  what starts and ends; with ?follow=1 all frames
//	GET    /channels/{channel}/current  the running response that began last
//
// What it does not know, CORS preflight requests included, goes to the next
// handler.
type Control struct {
	Delivery // as for the handler whose responses are to be found
}

// CaddyModule returns the Caddy module information.
func (*Control) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_stream_control",
		New: func() caddy.Module { return new(Control) },
	}
}

// Provision sets up the handler.
func (c *Control) Provision(ctx caddy.Context) error {
	if c.Resume == nil {
		c.Resume = new(Resume)
	}
	c.applyDefaults()
	return c.provision(ctx, c.Resume.Prefix)
}

// Validate makes sure that the configuration can work.
func (c *Control) Validate() error { return c.validate() }

// Cleanup releases what the handler shares with others.
func (c *Control) Cleanup() error {
	c.cleanup()
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	path, _ := strings.CutPrefix(r.URL.Path, c.Resume.Prefix+"/")
	kind, name, _ := strings.Cut(path, "/")
	serve, known := endpoints[endpoint{r.Method, kind, name != ""}]
	if !known || len(path) == len(r.URL.Path) {
		return next.ServeHTTP(w, r)
	}
	admit := c.counted
	if kind == "cancel" || r.Method == http.MethodDelete {
		admit = c.undrained // it does not stay, and may make room
	}
	return admit(w, r, func() error {
		as, ok := c.Resume.access(replacerOf(r))
		if !ok { // a request without an owner owns nothing
			return c.route.Refuse(w, r, emit.DialectText, relay.RefusalOf(fanout.ErrUnknown))
		}
		w.Header().Set("Cache-Control", "no-store")
		return serve(c, c.newRequest(w, r, next, ""), as, name)
	})
}

// endpoint is what tells the endpoints apart.
type endpoint struct {
	method string
	kind   string
	named  bool // something stands after the kind
}

var endpoints = map[endpoint]func(c *Control, q *relay.Request, as fanout.Access, name string) error{
	{http.MethodGet, "streams", true}:    (*Control).follow,
	{http.MethodDelete, "streams", true}: (*Control).cancel,
	{http.MethodPost, "cancel", true}:    (*Control).cancel,
	{http.MethodPost, "cancel", false}:   (*Control).cancelKey,
	{http.MethodGet, "channels", true}:   (*Control).channel,
}

// follow answers with a response: as frames from where the client was, or as a
// snapshot.
func (c *Control) follow(q *relay.Request, as fanout.Access, id string) error {
	if acceptsJSON(q.Request) {
		return c.route.Snapshot(q, as, id)
	}
	return c.route.Follow(q, as, id, lastEventID(q.Request))
}

// channel tells a client what starts and ends on a channel; with ?follow=1 it
// sends the frames of all its responses too.
func (c *Control) channel(q *relay.Request, as fanout.Access, name string) error {
	if name, isCurrent := strings.CutSuffix(name, "/current"); isCurrent && name != "" {
		return c.current(q, as, name)
	}
	frames := q.URL.Query().Get("follow") == "1"
	return c.route.Channel(q, as, name, frames, lastEventID(q.Request))
}

// current follows the response of a channel that began last of those that run,
// from its start: what a page asks for when it is opened again. Where none runs,
// the answer is 204.
func (c *Control) current(q *relay.Request, as fanout.Access, name string) error {
	id := c.route.Current(q.Context(), name, as)
	if id == "" {
		q.W.Header().Set("Cache-Control", "no-store")
		q.W.WriteHeader(http.StatusNoContent)
		return nil
	}
	return c.route.Follow(q, as, id, "")
}

// lastEventID returns the event id that a client comes back with: in the
// header, as an EventSource does, or in the query, as one can that is new.
func lastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// cancel ends a response.
func (c *Control) cancel(q *relay.Request, as fanout.Access, id string) error {
	status, err := c.route.Cancel(q.Context(), id, as)
	if err != nil {
		return c.route.Refuse(q.W, q.Request, emit.DialectText, relay.RefusalOf(err))
	}
	return writeJSON(q.W, cancelStatus(status), cancellation{id, status})
}

// cancelKey ends every response of an idempotency key, for a client that has no
// id yet.
func (c *Control) cancelKey(q *relay.Request, as fanout.Access, _ string) error {
	key := q.URL.Query().Get("idempotency_key")
	var list []cancellation
	err := fanout.ErrUnknown
	if key != "" {
		list, err = c.cancelAll(q, as, callKey(q.Request, as, key))
	}
	if len(list) == 0 {
		return c.route.Refuse(q.W, q.Request, emit.DialectText, relay.RefusalOf(err))
	}
	status := http.StatusOK
	for _, each := range list {
		status = max(status, cancelStatus(each.Status))
	}
	return writeJSON(q.W, status, struct {
		cancellation
		Responses []cancellation `json:"responses"`
	}{list[0], list})
}

// cancelAll ends the responses of a key. The error is for where there are none.
func (c *Control) cancelAll(q *relay.Request, as fanout.Access, key string) (list []cancellation, err error) {
	ids, err := c.route.OfKey(q.Context(), key)
	if err == nil {
		err = fanout.ErrUnknown
	}
	for _, id := range ids {
		status, cancelErr := c.route.Cancel(q.Context(), id, as)
		if cancelErr != nil {
			err = cancelErr
			continue
		}
		list = append(list, cancellation{id, status})
	}
	return list, err
}

// cancellation is the answer to a request to cancel.
type cancellation struct {
	ResponseID string        `json:"response_id"`
	Status     fanout.Status `json:"status"`
}

// cancelStatus is the HTTP status for what has become of a response.
func cancelStatus(status fanout.Status) int {
	if status == fanout.InProgress {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// acceptsJSON reports whether the client wants a snapshot and no stream.
func acceptsJSON(r *http.Request) bool {
	return deliver.Accepts(r, "application/json") && !deliver.Accepts(r, "text/event-stream")
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(body, '\n'))
	return err
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Control)(nil)
	_ caddy.Validator             = (*Control)(nil)
	_ caddy.CleanerUpper          = (*Control)(nil)
	_ caddyhttp.MiddlewareHandler = (*Control)(nil)
)
