package llmstream

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
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
//
// What it does not know, CORS preflight requests included, goes to the next
// handler.
type Control struct {
	// As for the handler whose responses are to be found.
	Resume *Resume `json:"resume,omitempty"`

	// As for the handler.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// As for the handler.
	Heartbeat caddy.Duration `json:"heartbeat,omitempty"`

	// As for the handler.
	Buffer int `json:"buffer,omitempty"`

	// As for the handler.
	SlowClient string `json:"slow_client,omitempty"`

	// As for the handler.
	Drain *Drain `json:"drain,omitempty"`

	handler *Handler
}

// control returns the control endpoints of a handler.
func (h *Handler) control() *Control {
	return &Control{Resume: h.Resume, Timeouts: h.Timeouts, Heartbeat: h.Heartbeat, Buffer: h.Buffer, SlowClient: h.SlowClient, Drain: h.Drain}
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
	c.handler = &Handler{Resume: c.Resume, Timeouts: c.Timeouts, Heartbeat: c.Heartbeat, Buffer: c.Buffer, SlowClient: c.SlowClient, Drain: c.Drain}
	return c.handler.Provision(ctx)
}

// Validate makes sure that the configuration can work.
func (c *Control) Validate() error { return c.handler.Validate() }

// Cleanup releases what the handler shares with others.
func (c *Control) Cleanup() error { return c.handler.Cleanup() }

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	path, _ := strings.CutPrefix(r.URL.Path, c.Resume.Prefix+"/")
	kind, name, _ := strings.Cut(path, "/")
	serve, known := endpoints[endpoint{r.Method, kind, name != ""}]
	if !known || len(path) == len(r.URL.Path) {
		return next.ServeHTTP(w, r)
	}
	admit := c.handler.admitted
	if kind == "cancel" || r.Method == http.MethodDelete || kind == "streams" && acceptsJSON(r) {
		admit = c.handler.undrained // it does not stay, and may make room
	}
	return admit(w, r, func() error {
		repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		as, ok := c.Resume.access(repl)
		if !ok {
			return refuseWith(w, r, emit.DialectText, refusal(fanout.ErrUnknown)) // to nobody nothing belongs
		}
		w.Header().Set("Cache-Control", "no-store")
		return serve(c, w, r, as, name)
	})
}

// endpoint is what tells the endpoints apart.
type endpoint struct {
	method string
	kind   string
	named  bool // something stands after the kind
}

var endpoints = map[endpoint]func(c *Control, w http.ResponseWriter, r *http.Request, as fanout.Access, name string) error{
	{http.MethodGet, "streams", true}:    (*Control).follow,
	{http.MethodDelete, "streams", true}: (*Control).cancel,
	{http.MethodPost, "cancel", true}:    (*Control).cancel,
	{http.MethodPost, "cancel", false}:   (*Control).cancelKey,
	{http.MethodGet, "channels", true}:   (*Control).channel,
}

// follow answers with a response: as frames from where the client was, or as a
// snapshot.
func (c *Control) follow(w http.ResponseWriter, r *http.Request, as fanout.Access, id string) error {
	response, err := c.handler.app.shared.registry.Find(id, as)
	if err != nil {
		c.handler.resumeResult(err)
		return refuseWith(w, r, emit.DialectText, refusal(err))
	}
	if acceptsJSON(r) {
		shot, err := snapshotOf(response)
		if err != nil {
			return refuseWith(w, r, response.Dialect, refusal(err))
		}
		return writeJSON(w, http.StatusOK, shot)
	}
	index := 0
	if eventID := lastEventID(r); eventID != "" {
		var of string
		of, index, err = fanout.ParseEventID(eventID)
		if err == nil && of != id {
			err = fanout.ErrBadCursor
		}
		if err != nil {
			c.handler.resumeResult(err)
			return refuseWith(w, r, response.Dialect, refusal(err))
		}
	}
	return c.handler.follow(w, r, response, index)
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
func (c *Control) cancel(w http.ResponseWriter, r *http.Request, as fanout.Access, id string) error {
	response, err := c.handler.app.shared.registry.Find(id, as)
	if err != nil {
		return refuseWith(w, r, emit.DialectText, refusal(err))
	}
	return writeJSON(w, http.StatusOK, cancelResponse(response))
}

// cancelKey ends every response of an idempotency key, for a client who has no
// id yet.
func (c *Control) cancelKey(w http.ResponseWriter, r *http.Request, as fanout.Access, _ string) error {
	key := r.URL.Query().Get("idempotency_key")
	responses := c.handler.app.shared.registry.FindKey(callKey(r, as, key))
	if key == "" || len(responses) == 0 {
		return refuseWith(w, r, emit.DialectText, refusal(fanout.ErrUnknown))
	}
	list := make([]cancellation, 0, len(responses))
	for _, response := range responses {
		list = append(list, cancelResponse(response))
	}
	return writeJSON(w, http.StatusOK, struct {
		cancellation
		Responses []cancellation `json:"responses"`
	}{list[0], list})
}

// cancellation is the answer to a request to cancel.
type cancellation struct {
	ResponseID string        `json:"response_id"`
	Status     fanout.Status `json:"status"`
}

// cancelResponse ends a response: who reads it has the end at once, whatever
// the upstream call does that is cancelled with it. One that has ended stays
// as it is.
func cancelResponse(response *fanout.Response) cancellation {
	response.End(cancelled)
	response.Cancel(fanout.ErrCancelled)
	_, terminal := response.Head()
	return cancellation{response.ID(), fanout.StatusOf(terminal)}
}

// acceptsJSON reports whether the client wants a snapshot and no stream.
func acceptsJSON(r *http.Request) bool {
	return accepts(r, "application/json") && !accepts(r, eventStream)
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

// startedAt is the form of a moment in JSON.
func startedAt(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// Interface guards
var (
	_ caddy.Provisioner           = (*Control)(nil)
	_ caddy.Validator             = (*Control)(nil)
	_ caddy.CleanerUpper          = (*Control)(nil)
	_ caddyhttp.MiddlewareHandler = (*Control)(nil)
)
