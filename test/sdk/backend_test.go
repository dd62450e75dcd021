package sdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// answers is a backend that answers each run in its own way: the first segment
// of the path names the run, the rest is the SDK's.
type answers struct {
	mu  sync.Mutex
	all map[string]*answer
}

// answer is how the backend answers one run.
type answer struct {
	http.Handler
	key   string
	calls atomic.Int64
}

func (b *answers) add(h http.Handler) *answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &answer{Handler: h, key: fmt.Sprintf("run%d", len(b.all))}
	if b.all == nil {
		b.all = make(map[string]*answer)
	}
	b.all[a.key] = a
	return a
}

// ServeHTTP implements http.Handler.
func (b *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	b.mu.Lock()
	a := b.all[key]
	b.mu.Unlock()
	if a == nil {
		http.NotFound(w, r)
		return
	}
	a.calls.Add(1)
	a.ServeHTTP(w, r)
}

// simulated answers in a provider's format, whatever API the client asks. It
// does with the request what has to be done where the two do not fit.
func simulated(format string, options llmsim.Options) http.Handler {
	path := map[string]string{"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}[format]
	sim := &llmsim.Backend{Options: options}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = path
		if format == "openai" {
			askForUsage(r)
		}
		sim.ServeHTTP(w, r)
	})
}

// askForUsage says in a request's body what only OpenAI's clients can say.
func askForUsage(r *http.Request) {
	body := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return // a GET
	}
	body["stream_options"] = map[string]bool{"include_usage": true}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
}

// afterFirst answers the first request and the others in two ways.
func afterFirst(first, others http.Handler) http.Handler {
	var called atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if called.CompareAndSwap(false, true) {
			first.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// How a recording is played.
type play uint8

const (
	playWhole   play = iota // in random pieces
	playSlowly              // event by event, with pauses in which heartbeats come
	playDying               // the connection breaks in the middle
	playEnding              // a clean end in the middle
	playFailing             // the provider's error event in the middle, and a clean end
)

// recorded plays a recording. failure is the provider's error event.
func recorded(rec corpus.Recording, how play, failure string) http.Handler {
	events := eventsOf(rec)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType(rec))
		middle := (len(events) + 1) / 2
		switch how {
		case playWhole:
			sayInPieces(w, rec.Body)
		case playSlowly:
			for i, event := range events {
				if i < 4 {
					time.Sleep(pause)
				}
				rig.Say(w, event)
			}
		case playDying:
			rig.Say(w, events[:middle]...)
			panic(http.ErrAbortHandler)
		case playEnding:
			rig.Say(w, events[:middle]...)
		case playFailing:
			rig.Say(w, events[:middle]...)
			rig.Say(w, failure)
		}
	})
}

// boundary is where a server-sent event ends.
var boundary = regexp.MustCompile("\r?\n\r?\n")

// eventsOf cuts a recording into its events.
func eventsOf(rec corpus.Recording) (events []string) {
	start := 0
	for _, end := range boundary.FindAllIndex(rec.Body, -1) {
		events = append(events, string(rec.Body[start:end[1]]))
		start = end[1]
	}
	return append(events, string(rec.Body[start:]))
}

// asking makes every request a POST with a body, which an EventSource cannot
// send.
func asking(body string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Method = http.MethodPost
		r.Body = io.NopCloser(strings.NewReader(body))
		h.ServeHTTP(w, r)
	})
}

// sayInPieces writes a body in pieces that end anywhere.
func sayInPieces(w http.ResponseWriter, body []byte) {
	rng := rand.New(rand.NewPCG(1, uint64(len(body))))
	for len(body) > 0 {
		n := min(len(body), 1+rng.IntN(16000))
		rig.Say(w, string(body[:n]))
		body = body[n:]
	}
}

// cutter stands between the clients and Caddy and cuts connections in the
// middle of a response, as a network does: the reader is told nothing.
type cutter struct {
	addr    string
	to      string
	after   int64 // bytes of an answer
	only    int64 // how many connections are cut; the others are not
	number  atomic.Int64
	running sync.WaitGroup
	mu      sync.Mutex
	conns   []net.Conn
}

// newCutter runs a cutter until the test ends.
func newCutter(t *testing.T, to string, after, only int64) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String(), to: to, after: after, only: only}
	c.running.Go(func() { c.accept(ln) })
	t.Cleanup(func() {
		_ = ln.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.running.Wait()
	})
	return c
}

func (c *cutter) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, client, server)
		c.mu.Unlock()
		cut := c.number.Add(1) <= c.only
		c.running.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		c.running.Go(func() {
			if cut {
				_, _ = io.CopyN(client, server, c.after)
			} else {
				_, _ = io.Copy(client, server)
			}
			_ = client.Close()
			_ = server.Close()
		})
	}
}
