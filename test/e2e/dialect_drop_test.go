package e2e_test

import (
	"io"
	"net/http"
	"testing"
)

// A dialect that cannot tell of a gap has none: where drop meets one by a
// placeholder, a slow client is cut off, or with resume gets everything.
func TestDropInADialectWithoutGaps(t *testing.T) {
	for name, options := range map[string]string{"without resume": "", "with resume": "resume /llm {\nmax_size 64MiB\n}"} {
		t.Run(name, func(t *testing.T) {
			g := newGush(4 * bulkEvents) // more than fits between here and the client
			c, _ := serve(t, "emit {http.request.header.X-Emit}\nslow_client drop\n"+options, g.ServeHTTP)
			slow := stall(t, c, post(`{}`, "X-Emit", "plain"))
			_ = g.finished(t)
			if options == "" {
				slow.cutOff(t)
				return
			}
			resp, err := http.ReadResponse(slow.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			equal(t, "end", err, nil)
			g.all(t, "the client", string(body))
		})
	}
}
