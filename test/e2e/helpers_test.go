// Package e2e_test sends requests through a real Caddy on real sockets.
package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	// The module under test.
	_ "github.com/caddy-llmstream/caddy-llmstream"
	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

func TestMain(m *testing.M) {
	// Connections that are not in use would look like leaks.
	http.DefaultClient.Transport = &http.Transport{DisableKeepAlives: true}
	os.Exit(m.Run())
}

// Header fields with which a test tells the backend and the site which case it
// is about. Clients have none of them.
const (
	caseHeader    = "X-Case"
	cutHeader     = "X-Cut"
	dialectHeader = "X-Dialect"
	routeHeader   = "X-Route"
)

// cuts are the ways in which a backend's bytes are cut.
var cuts = []string{"whole", "random", "bytes"}

// play is a backend that plays cases, cut as the request says.
type play map[string]*corpus.Case

func (p play) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c := p[r.Header.Get(caseHeader)]
	sleep(r.Context(), time.Duration(c.HeaderWaitMS)*time.Millisecond)
	for name, value := range c.ResponseHeaders {
		if value == nil {
			w.Header()[name] = nil
		} else {
			w.Header().Set(name, *value)
		}
	}
	w.WriteHeader(c.ResponseStatus)
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	random := rand.New(rand.NewPCG(1, uint64(len(c.Name))))
	for _, step := range c.Steps {
		for rest := []byte(step.Data); len(rest) > 0; {
			n := pieceOf(r.Header.Get(cutHeader), len(step.Data), random)
			n = min(n, len(rest))
			_, _ = w.Write(rest[:n])
			_ = rc.Flush()
			rest = rest[n:]
		}
		if step.Hang {
			<-r.Context().Done()
			return
		}
		sleep(r.Context(), step.Wait())
	}
}

// pieceOf returns how long the next piece of a step is. Bytes of a large step
// go in larger pieces, since each is a write.
func pieceOf(cut string, size int, random *rand.Rand) int {
	switch cut {
	case "bytes":
		return 1 + size/4000
	case "random":
		return 1 + random.IntN(600+size/100)
	}
	return size
}

// sleep waits for a backend that is silent, at most until its client leaves.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// routes gives each set of options of the cases a name.
type routes struct {
	names map[string]string
	texts []string
}

// nameOf returns the name of a case's route.
func (r *routes) nameOf(c *corpus.Case) string {
	var b strings.Builder
	limits := ""
	for _, option := range slices.Sorted(maps.Keys(c.Route)) {
		value := c.Route[option]
		switch option {
		case "first_token", "between_tokens":
			limits += "\t\t\t" + option + " " + value + "\n"
		case "resume":
			fmt.Fprintf(&b, "\t\tresume %s {\n\t\t\towner anyone\n\t\t}\n", value)
		default:
			fmt.Fprintf(&b, "\t\t%s %s\n", option, value)
		}
	}
	if limits != "" {
		b.WriteString("\t\ttimeouts {\n" + limits + "\t\t}\n")
	}
	text := b.String()
	if r.names == nil {
		r.names = map[string]string{}
	}
	if r.names[text] == "" {
		r.names[text] = fmt.Sprintf("route%d", len(r.names))
		r.texts = append(r.texts, text)
	}
	return r.names[text]
}

// caddyfile returns a site with all routes, before one backend.
func (r *routes) caddyfile(backend string) string {
	var b strings.Builder
	b.WriteString("ADDR {\n")
	for _, text := range r.texts {
		name := r.names[text]
		fmt.Fprintf(&b, "\t@%s header %s %s\n", name, routeHeader, name)
		fmt.Fprintf(&b, "\tllm_stream @%s {\n\t\temit {http.request.header.%s}\n\t\tinclude reasoning tool_calls\n%s\t}\n", name, dialectHeader, text)
	}
	b.WriteString("\treverse_proxy " + backend + "\n}")
	return b.String()
}

// response is what a client has got.
type response struct {
	status int
	header http.Header
	body   []byte
	cut    error
	took   time.Duration
}

// patience is how long a test waits for what must come, on a machine that does
// other things as well: it ends what hangs.
const patience = time.Minute

// atLatest is a limit of the product as a test may hold it to: strictly where
// nothing slows it down, and with what a busy machine needs under the race
// detector, where the clock decides nothing.
func atLatest(limit time.Duration) time.Duration {
	if rig.Race {
		limit += 15 * time.Second
	}
	return limit
}

// send asks for a case through the site at addr.
func send(ctx context.Context, addr string, c *corpus.Case, route, dialect, cut string) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method := http.MethodPost
	if c.RequestBody == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+c.Path, strings.NewReader(string(c.RequestBody)))
	if err != nil {
		return nil, err
	}
	for name, value := range c.RequestHeaders {
		if value != nil {
			req.Header.Set(name, *value)
		}
	}
	req.Header.Set(caseHeader, c.Name)
	req.Header.Set(cutHeader, cut)
	req.Header.Set(dialectHeader, dialect)
	req.Header.Set(routeHeader, route)
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	r := &response{status: resp.StatusCode, header: resp.Header}
	r.body, r.cut = io.ReadAll(resp.Body)
	r.took = time.Since(begun)
	return r, nil
}
