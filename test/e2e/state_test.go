package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// state is what this process holds, as its admin API tells.
type state struct {
	Clients, Readers, Streams, Queued, Running, Kept int
	Members                                          int `json:"drained_members"`
}

// stateNow asks the admin API of this process.
func stateNow(t *testing.T) (s state) {
	t.Helper()
	module, err := caddy.GetModule("admin.api.llm_stream")
	if err != nil {
		t.Fatal(err)
	}
	const path = "/llm_stream/state"
	for _, route := range module.New().(caddy.AdminRouter).Routes() {
		if route.Pattern != path {
			continue
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err := route.Handler.ServeHTTP(w, r); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatal("the admin API has no " + path)
	return s
}

// remembers reports whether a response is known, if only as one that has expired.
func remembers(t *testing.T, c *rig.Caddy, id string) bool {
	t.Helper()
	resp, err := get("/llm/streams/"+id, "Accept", "application/json").try(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode != http.StatusNotFound
}
