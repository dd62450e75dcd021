package deploy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-llmstream/caddy-llmstream" // the handler under load
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
)

// startCaddy runs a Caddy before a simulated backend, and returns it with the
// address of its admin API. Limits are tight, so that every one is met.
func startCaddy(t *testing.T) (c *rig.Caddy, admin string) {
	t.Helper()
	sim := &llmsim.Backend{Options: llmsim.Options{Tokens: 20, Interval: 5 * time.Millisecond, TTFT: 20 * time.Millisecond}}
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerFlood) != "" {
			flood(w, r)
			return
		}
		sim.ServeHTTP(w, r)
	})
	admin = rig.FreeAddr(t)
	shared := redistest.Start(t)
	elsewhere(t, shared.URL())
	return rig.Start(t, strings.NewReplacer("BACKEND", backend.Addr, "REDIS", shared.URL(), "ADMIN", admin).Replace(`{
	admin ADMIN
	llm_stream {
		store redis REDIS
	}
}
ADDR {
	handle_path /narrow/* {
		llm_stream {
			max_streams 1 {
				queue 1 5s
			}
		}
		reverse_proxy BACKEND
	}
	handle_path /kept/* {
		llm_stream {
			buffer 1
			slow_client disconnect
			resume /llm {
				keep 10s
				grace 100ms
				max_size 64MiB
			}
			drain {
				spread 10ms
				retry 10ms
			}
		}
		reverse_proxy BACKEND
	}
	handle {
		llm_stream {
			timeouts {
				first_token 300ms
				write 400ms
			}
		}
		reverse_proxy BACKEND
	}
}`)), admin
}

// elsewhereID is the id of a response that another replica produces.
const elsewhereID = "0123456789abcdefghijkl"

// elsewhere is another replica, whose one response goes on until the test ends.
func elsewhere(t *testing.T, url string) {
	t.Helper()
	opened, err := redis.Open(redis.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	replica := store.Join(opened, nil)
	stream := fanout.NewStream(elsewhereID, 0)
	spec := &store.Spec{
		ID: elsewhereID, Access: fanout.Access{Scope: "127.0.0.1"}, Dialect: "text", Started: time.Now(), Keep: time.Minute,
	}
	writer := replica.Write(spec, store.Ref{}, store.LogOf(stream), carefree{})
	var speaking sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	speaking.Go(func() {
		for ctx.Err() == nil {
			word := []event.Event{{Kind: event.Text, Text: []byte("word ")}}
			if err := stream.Append(word); err != nil {
				t.Error(err)
			}
			writer.Appended(1, len(word[0].Text))
			pause(ctx, 20*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop()
		speaking.Wait()
		_ = replica.Close(context.Background())
		_ = opened.Close()
	})
}

// carefree is the owner of a response that nobody does anything to.
type carefree struct{}

func (carefree) CancelRequested() {}
func (carefree) Superseded()      {}
func (carefree) LocalOnly(bool)   {}

// follows follows the response of the other replica for a moment.
func follows(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	open(ctx, addr, "/kept/llm/streams/"+elsewhereID, nil, func(resp *http.Response) {
		_, _ = io.Copy(io.Discard, resp.Body)
	})
}

// visitor does one thing to a Caddy, again and again. What comes of it the
// metrics tell.
type visitor func(ctx context.Context, addr string)

const (
	chat    = "/v1/chat/completions"
	request = `{"model":"sim","stream":true,"stream_options":{"include_usage":true},"max_tokens":1000000,"messages":[{"role":"user","content":"hi"}]}`
)

// visitors are the clients that make every metric move.
var visitors = []visitor{
	reads(chat),
	reads("/v1/messages"),
	reads(chat, llmsim.HeaderFault, "end", llmsim.HeaderFaultAt, "5"),
	reads(chat, llmsim.HeaderFault, "error", llmsim.HeaderFaultAt, "5"),
	reads(chat, llmsim.HeaderFault, "hang"),
	leaves,
	crowds,
	comesBack,
	reads("/kept"+chat, "Last-Event-ID", "0000000000000000000000:1"), // unknown
	lags,
	stalls,
	follows,
}

// load has all visitors come until the test ends.
func load(t *testing.T, c *rig.Caddy) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, visit := range visitors {
		wg.Go(func() {
			for ctx.Err() == nil {
				visit(ctx, c.Addr)
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// newRequest returns a request for a generation, or a GET of what is there.
func newRequest(ctx context.Context, addr, path string, header ...string) *http.Request {
	method := http.MethodPost
	if strings.Contains(path, "/llm/") {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(request))
	if err != nil {
		panic(err) // addr and path are constants of this test
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	return req
}

// open sends a request and hands the response to use.
func open(ctx context.Context, addr, path string, header []string, use func(*http.Response)) {
	resp, err := http.DefaultClient.Do(newRequest(ctx, addr, path, header...))
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	use(resp)
}

func drain(resp *http.Response) { _, _ = io.Copy(io.Discard, resp.Body) }

// reads reads a response to its end.
func reads(path string, header ...string) visitor {
	return func(ctx context.Context, addr string) { open(ctx, addr, path, header, drain) }
}

// leaves goes after the first bytes of a long response.
func leaves(ctx context.Context, addr string) {
	open(ctx, addr, chat, []string{llmsim.HeaderTokens, "10000"}, func(resp *http.Response) {
		_, _ = io.ReadFull(resp.Body, make([]byte, 100))
	})
}

// crowds are three requests for the one place, one of which may wait.
func crowds(ctx context.Context, addr string) {
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { reads("/narrow"+chat)(ctx, addr) })
	}
	wg.Wait()
}

// comesBack has had one event of a response and asks for the others.
func comesBack(ctx context.Context, addr string) {
	open(ctx, addr, "/kept"+chat, nil, func(resp *http.Response) {
		drain(resp)
		id := resp.Header.Get("X-Response-Id")
		reads("/kept/llm/streams/"+id, "Last-Event-ID", id+":1")(ctx, addr)
	})
}

// lags reads slower than the model speaks, so that writes to it are held up.
func lags(ctx context.Context, addr string) {
	withSmallSocket(ctx, addr, "/kept"+chat, func(conn net.Conn) {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		for piece := make([]byte, 64<<10); ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
			if _, err := io.ReadFull(conn, piece); err != nil {
				return
			}
		}
	})
}

// stalls reads nothing until it is disconnected.
func stalls(ctx context.Context, addr string) {
	withSmallSocket(ctx, addr, chat, func(net.Conn) { pause(ctx, time.Second) })
}

// withSmallSocket asks for a flood over a socket that takes little.
func withSmallSocket(ctx context.Context, addr, path string, use func(net.Conn)) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	if newRequest(ctx, addr, path, headerFlood, "yes").Write(conn) == nil {
		use(conn)
	}
}

// headerFlood asks the backend for a flood.
const headerFlood = "X-Flood"

// flood is more than sockets take, in few events: the simulator's tokens are so
// small that a machine with little to spare is not done with them in time.
func flood(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	chunk := rig.Chunk(strings.Repeat("x", 64<<10))
	for i := 0; i < 200 && r.Context().Err() == nil; i++ {
		rig.Say(w, chunk)
	}
	rig.Say(w, rig.Stop)
}
