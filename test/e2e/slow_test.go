package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// Coalesce loses nothing: a client that looks away finds what it has missed in
// few frames, and one that looks on notices nothing.
func TestSlowClientCoalesces(t *testing.T) {
	g := newGush(bulkEvents)
	g.tick = make(chan struct{})
	c, backend := keep(t, "max_size 64MiB", g.ServeHTTP)
	slow := stall(t, c, post(`{}`, "Idempotency-Key", "k"))
	g.tick <- struct{}{} // it is the first
	other := rig.NewFrameReader(post(`{}`, "Idempotency-Key", "k").do(t, c).Body)
	g.watch(t, other)
	got, err := take(t, slow.frames(t), nil)
	equal(t, "end", fmt.Sprint(got.done, err), "true EOF")
	g.all(t, "the slow client", got.text.String())
	if got.frames > bulkEvents*3/4 {
		t.Errorf("%d frames: nothing was merged", got.frames)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// idle is how long a slow client takes nothing: much longer than what makes it
// slow.
const idle = 300 * time.Millisecond

// Drop skips to the head and says what it has skipped.
func TestSlowClientDrops(t *testing.T) {
	for name, resume := range map[string]string{"without resume": "", "with resume": "resume /llm {\nmax_size 64MiB\n}"} {
		t.Run(name, func(t *testing.T) {
			g := newGush(bulkEvents)
			g.tick = make(chan struct{})
			c, _ := serve(t, "slow_client drop\n"+resume, g.ServeHTTP)
			slow := stall(t, c, post(`{}`))
			g.tick <- struct{}{}
			if _, err := slow.r.Peek(1); err != nil { // it keeps up at first
				t.Fatal(err)
			}
			close(g.tick)
			if err := g.finished(t); err != nil {
				t.Fatal(err)
			}
			time.Sleep(idle)
			had, dropped, gaps := 0, 0, 0
			for fr := slow.frames(t); ; {
				f, err := fr.Next()
				if err != nil {
					t.Fatal(err)
				}
				var data struct {
					Text    string
					Dropped int
				}
				if err := json.Unmarshal([]byte(f.Data), &data); err != nil {
					t.Fatal(err)
				}
				had += 1 + max(0, data.Dropped-1)
				equal(t, "index", f.Index(), had)
				if f.Event == "done" {
					break
				}
				if f.Event == "gap" {
					gaps, dropped = gaps+1, dropped+data.Dropped
				} else if data.Text != g.text(had-1) {
					t.Fatalf("%+v is not the delta %d", f, had)
				}
			}
			equal(t, "last index", had, bulkEvents+1)
			if gaps == 0 || dropped == 0 || dropped == bulkEvents {
				t.Errorf("%d dropped in %d gaps", dropped, gaps)
			}
		})
	}
}

// Disconnect sends a client away; with resume it comes back and goes on.
func TestSlowClientIsDisconnected(t *testing.T) {
	g := newGush(bulkEvents)
	c, backend := keep(t, "max_size 64MiB\n}\nslow_client disconnect\ntimeouts {\nwrite 20s", g.ServeHTTP)
	slow := stall(t, c, post(`{}`))
	if err := g.finished(t); err != nil {
		t.Fatal(err)
	}
	time.Sleep(idle)
	var last rig.Frame
	got, err := take(t, slow.frames(t), func(f rig.Frame) { last = f })
	equal(t, "end", fmt.Sprint(got.done, err), "false EOF")
	if last.Event != "reconnect" || !strings.Contains(last.Data, `{"reason":"slow_client","retry_ms":`) || last.Retry == "" {
		t.Errorf("the last frame is %+v", last)
	}
	text, done := got.text.String(), false
	for !done { // a client that comes back may be sent away again
		rest, err := take(t, rig.NewFrameReader(post(``, "Last-Event-ID", last.ID).do(t, c).Body), func(f rig.Frame) { last = f })
		equal(t, "end of the rest", err, io.EOF)
		text += rest.text.String()
		done = rest.done
	}
	g.all(t, "the client", text)
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// Without resume there is no coming back: the upstream is cancelled, and the
// client must not take what it has for the whole.
func TestSlowClientIsDisconnectedForGood(t *testing.T) {
	g := newGush(100 * bulkEvents)
	c, _ := serve(t, "slow_client disconnect\ntimeouts {\nwrite 300ms\n}", g.ServeHTTP)
	slow := stall(t, c, post(`{}`))
	if err := g.finished(t); err == nil {
		t.Error("the upstream was not cancelled")
	}
	slow.cutOff(t)
}

// Block holds the upstream back, and what a client does not take costs no
// memory: no client reads 50 MB (opencode#19423, LibreChat#14612).
func TestSlowClientHoldsTheUpstreamBack(t *testing.T) {
	n := fiftyMB()
	g := newGush(n)
	c, _ := serve(t, "", g.ServeHTTP)
	before := heap()
	slow := stall(t, c, post(`{}`))
	sent := g.held(t)
	bounded(t, before)
	if sent > int64(n)*2/3 {
		t.Errorf("%d of %d were taken from the upstream", sent, n)
	}
	got, err := take(t, slow.frames(t), nil)
	equal(t, "end", fmt.Sprint(got.done, err), "true EOF")
	equal(t, "frames", got.frames, n+1)
	g.all(t, "the client", got.text.String())
}

// Drop does not hold the upstream back, and keeps no more than the client may
// lag.
func TestDroppingCostsNoMemory(t *testing.T) {
	g := newGush(fiftyMB())
	c, _ := serve(t, "slow_client drop", g.ServeHTTP)
	before := heap()
	stall(t, c, post(`{}`))
	if err := g.finished(t); err != nil {
		t.Fatal(err)
	}
	bounded(t, before)
}

// Each of many that stall holds what it may lag, twice: what is kept, and what it
// is stuck in the writing of.
func TestStalledClientsHoldTheirWindow(t *testing.T) {
	const clients, most = 10, 900 << 10
	gushes := make(chan *gush, clients)
	list := make([]*gush, clients)
	for i := range list {
		list[i] = newGush(8 << 20 / bulkSize)
		gushes <- list[i]
	}
	c, _ := serve(t, "slow_client drop", func(w http.ResponseWriter, r *http.Request) { (<-gushes).ServeHTTP(w, r) })
	before := heap()
	for range list {
		stall(t, c, post(`{}`))
	}
	for _, g := range list {
		if err := g.finished(t); err != nil {
			t.Fatal(err)
		}
	}
	var each int64
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if each = (heap() - before) / clients; each < most {
			return
		}
	}
	t.Errorf("each holds %d bytes", each)
}

// heap is what is in use of it, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first has only found
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// bounded checks that no more than 8 MB of heap are in use beside what was
// before.
func bounded(t *testing.T, before int64) {
	t.Helper()
	var grown int64
	for range 20 { // a read that is under way is over at the next look
		if grown = heap() - before; grown < 8<<20 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the heap has grown by %d bytes", grown)
}

// A write that makes no progress ends the client, whatever is done about slow
// ones; others notice nothing.
func TestWriteTimeout(t *testing.T) {
	for name, options := range map[string]string{
		"block":    "",
		"drop":     "slow_client drop",
		"coalesce": "resume /llm {\nmax_size 256MiB\ngrace 12s\n}",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGush(bulkEvents)
			g.tick = make(chan struct{})
			c, _ := serve(t, "timeouts {\nwrite 200ms\n}\n"+options, g.ServeHTTP)
			slow := stall(t, c, post(`{}`, "Idempotency-Key", "k"))
			resume := strings.Contains(options, "resume")
			g.tick <- struct{}{}
			if resume {
				other := rig.NewFrameReader(post(`{}`, "Idempotency-Key", "k").do(t, c).Body)
				g.watch(t, other)
			} else {
				go func() { // at a pace that the client keeps up with until it is stuck
					for range time.Tick(200 * time.Microsecond) {
						select {
						case g.tick <- struct{}{}:
						case <-t.Context().Done():
							return
						}
					}
				}()
				if err := g.finished(t); err == nil {
					t.Error("the upstream was not cancelled")
				}
			}
			time.Sleep(400 * time.Millisecond)
			slow.cutOff(t)
		})
	}
}

// A client that is sent away because it is slow is counted as such, and so soon
// that the upstream is not paid for what no client reads.
func TestSlowClientIsSentAwayFromItsWrite(t *testing.T) {
	g := newGush(1000 * bulkEvents)
	backend := rig.NewBackend(t, g.ServeHTTP)
	c := rig.Start(t, fmt.Sprintf(withMetrics, "slow_client disconnect", backend.Addr)) // and its write may take 30 s
	before := atRest(t, c)
	slow := stall(t, c, post(`{}`))
	begin := time.Now()
	if err := g.finished(t); err == nil {
		t.Error("the upstream was not cancelled")
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	slow.cutOff(t)
	for _, name := range []string{
		`streams_total{format="openai-chat",outcome="slow_client"}`, `slow_clients_total{action="disconnected"}`,
	} {
		eventually(t, name+" is counted", func() bool { return scrape(t, c)[name]-before[name] == 1 })
	}
	atRest(t, c)
}
