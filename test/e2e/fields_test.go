package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A client that follows a response has what its own route sets, not what was set
// for the client that asked: that might be a cookie, a token or another origin.
func TestFollowersHaveTheirOwnFields(t *testing.T) {
	ticks := make(chan struct{})
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Request-Id"] = []string{"a", "b", "c"}
		w.Header().Set("Access-Control-Allow-Credentials", "true") // for the origin of the client that asked
		w.Header().Set("X-Auth-Token", "secret")
		w.Header().Set("X-Site", "the upstream's")
		ticking(2, ticks, nil)(w, r)
	})
	c := rig.Start(t, `ADDR {
		header {
			Set-Cookie "session={http.request.header.X-User}"
			Access-Control-Allow-Origin {http.request.header.Origin}
			X-Site "of {http.request.header.X-User}"
		}
		header >X-Request-Id ^(.*)$ "<$1>"
		header {
			+X-Request-Id {http.request.header.X-User}
			defer
		}
		llm_stream {
			resume /llm
		}
		reverse_proxy `+backend.Addr+`
	}`)
	go func() { ticks <- struct{}{} }()
	got := map[string]*http.Response{"ann": post(`{}`, "X-User", "ann", "Origin", "https://ann").do(t, c)}
	id := got["ann"].Header.Get("X-Response-Id")
	for _, who := range []string{"bob", "cyd"} {
		got[who] = get("/llm/streams/"+id, "X-User", who, "Origin", "https://"+who).do(t, c)
	}
	ticks <- struct{}{}
	got["dan"] = post(``, "Last-Event-ID", id+":0", "X-User", "dan", "Origin", "https://dan").do(t, c)
	for who, resp := range got {
		h := maps.Clone(resp.Header)
		equal(t, who, fmt.Sprint(h["Set-Cookie"], h["Access-Control-Allow-Origin"], h["X-Request-Id"]),
			fmt.Sprintf("[session=%[1]s] [https://%[1]s] [<a> <b> <c> <%[1]s>]", who))
		if who != "ann" {
			equal(t, who, fmt.Sprint(h["X-Site"], h["Access-Control-Allow-Credentials"], h["X-Auth-Token"]), "[of "+who+"] [] []")
		}
	}
}
