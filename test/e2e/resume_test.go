package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// quickDrain lets a test have a short grace: it must be longer than clients take
// to come back.
const quickDrain = "drain {\nspread 2ms\nretry 1ms\n}\n"

// keep runs Caddy with llm_stream and resume before a backend.
func keep(t *testing.T, options string, answer http.HandlerFunc) (*rig.Caddy, *rig.Backend) {
	t.Helper()
	return serve(t, "resume /llm {\n"+options+"\n}\n"+quickDrain, answer)
}

// What a client has had before a cut and what it gets after it is the whole,
// whatever the place of the cut, with one upstream call.
func TestResumeAtEveryEvent(t *testing.T) {
	recordings := corpus.Load(t, keys(formats)...)
	backend := rig.NewBackend(t, newReplay(recordings).ServeHTTP)
	c := rig.Start(t, `ADDR {
		llm_stream {
			include reasoning tool_calls
			resume /llm
		}
		reverse_proxy `+backend.Addr+`
	}`)
	calls := int64(0)
	for _, rec := range recordings {
		resp := ask(t, c, formats[rec.Format].path, http.Header{"X-Replay": {rec.File}, "X-Cut": {"whole"}})
		calls++
		if resp.StatusCode != http.StatusOK {
			continue // failed before any output
		}
		all := frames(t, rig.NewFrameReader(resp.Body), -1)
		id, _, _ := strings.Cut(all[0].ID, ":")
		step := 1 + len(all)/40 // every event of the short ones, and 40 places of the long
		for k := 0; k < len(all); k += step {
			resp := get("/llm/streams/"+id, "Last-Event-ID", fmt.Sprintf("%s:%d", id, indexAfter(all, k))).do(t, c)
			equal(t, "status", resp.StatusCode, http.StatusOK)
			rest := frames(t, rig.NewFrameReader(resp.Body), -1)
			checkSeam(t, rec.File, all, k, rest)
		}
		resp = get("/llm/streams/"+id, "Last-Event-ID", fmt.Sprintf("%s:%d", id, indexAfter(all, len(all)))).do(t, c)
		equal(t, "status at the end", resp.StatusCode, http.StatusNoContent)
	}
	equal(t, "upstream calls", backend.Calls.Load(), calls)
}

// indexAfter is the index that a client has after k frames.
func indexAfter(all []rig.Frame, k int) int {
	if k == 0 {
		return 0
	}
	return all[k-1].Index()
}

// checkSeam checks that the first k frames and the rest make the whole.
func checkSeam(t *testing.T, what string, all []rig.Frame, k int, rest []rig.Frame) {
	t.Helper()
	whole, parts := new(rig.Answer), new(rig.Answer)
	for _, f := range all {
		if err := whole.Merge(f); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(append([]rig.Frame(nil), all[:k]...), rest...) {
		if err := parts.Merge(f); err != nil {
			t.Fatalf("%s, cut after %d: %v", what, k, err)
		}
	}
	if last := rest[len(rest)-1]; last.Index() != indexAfter(all, len(all)) || !last.Terminal() {
		t.Fatalf("%s, cut after %d: the last frame is %+v", what, k, last)
	}
	equal(t, "text", parts.Text, whole.Text)
	equal(t, "reasoning", parts.Reasoning, whole.Reasoning)
	equal(t, "tool calls", fmt.Sprint(parts.ToolCalls), fmt.Sprint(whole.ToolCalls))
}

// ticking is a backend that sends n deltas, each when a value comes from
// ticks, and tells whether its client left.
func ticking(n int, ticks <-chan struct{}, left chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for i := range n {
			select {
			case <-ticks:
				rig.Say(w, rig.Chunk(fmt.Sprintf("t%d ", i)))
			case <-r.Context().Done():
				left <- struct{}{}
				return
			}
		}
		rig.Say(w, rig.Stop)
	}
}

func wantText(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, "t%d ", i)
	}
	return b.String()
}

// always is a channel that is always ready.
func always(t *testing.T) chan struct{} {
	t.Helper()
	c := make(chan struct{})
	close(c)
	return c
}

// The client of the POST is cut at random places, again and again; what it
// gets in all is the whole response, from one upstream call.
func TestRandomCuts(t *testing.T) {
	const n, runs = 30, 200
	c, backend := keep(t, "", ticking(n, always(t), nil))
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(run), 7))
		a := new(rig.Answer)
		last := ""
		for a.Done == nil {
			ctx, cancel := context.WithCancel(t.Context())
			q := post(`{"stream":true}`)
			if last != "" {
				q.header.Set("Last-Event-ID", last)
			}
			resp, err := q.try(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "status", resp.StatusCode, http.StatusOK)
			fr := rig.NewFrameReader(resp.Body)
			for range 1 + rng.IntN(n) {
				f, err := fr.Next()
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Merge(f); err != nil {
					t.Fatal(err)
				}
				if last = f.ID; f.Terminal() {
					break
				}
			}
			cancel()
			_ = resp.Body.Close()
		}
		equal(t, "text", a.Text, wantText(n))
	}
	equal(t, "upstream calls", backend.Calls.Load(), runs)
}

// A second device joins in the middle: it gets what was before, then goes on
// live, without a seam.
func TestSecondDeviceJoins(t *testing.T) {
	ticks, left := make(chan struct{}), make(chan struct{}, 1)
	c, backend := keep(t, "", ticking(20, ticks, left))
	go func() {
		for range 10 {
			ticks <- struct{}{}
		}
	}()
	first := rig.NewFrameReader(post(`{}`).do(t, c).Body)
	had := frames(t, first, 10)
	id, _, _ := strings.Cut(had[0].ID, ":")
	second := rig.NewFrameReader(get("/llm/streams/"+id).do(t, c).Body)
	joined := frames(t, second, 1)
	equal(t, "what was before", joined[0].Data, `{"text":"`+wantText(10)+`"}`)
	equal(t, "its id", joined[0].ID, had[9].ID)
	go func() {
		for range 10 {
			ticks <- struct{}{}
		}
	}()
	equal(t, "live", fmt.Sprint(frames(t, second, -1)), fmt.Sprint(frames(t, first, -1)))
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// Leaving lets a response run for its grace; then the upstream is cancelled.
func TestLeavingIsNotStopping(t *testing.T) {
	ticks, left := make(chan struct{}), make(chan struct{}, 1)
	c, _ := keep(t, "grace 300ms", ticking(20, ticks, left))
	go func() { ticks <- struct{}{} }()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := post(`{}`).try(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	id := resp.Header.Get("X-Response-Id")
	frames(t, rig.NewFrameReader(resp.Body), 1)
	cancel()
	_ = resp.Body.Close()
	at := time.Now()
	ticks <- struct{}{} // it still runs
	select {
	case <-left:
		if d := time.Since(at); d < 250*time.Millisecond {
			t.Errorf("cancelled after %v", d)
		}
	case <-time.After(patience):
		t.Fatal("the upstream still runs")
	}
	all := frames(t, rig.NewFrameReader(get("/llm/streams/"+id).do(t, c).Body), -1)
	equal(t, "what there was", all[0].Data+all[1].Data, `{"text":"t0 t1 "}{"finish_reason":"cancelled"}`)
}

// Cancelling stops the upstream at once, whatever it does, and tells every client.
func TestCancel(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the header":      func(http.ResponseWriter) {},
		"before the first token": func(w http.ResponseWriter) { rig.EventStream(w); rig.Say(w, ": wait\n\n") },
		"in mid-stream":          func(w http.ResponseWriter) { rig.EventStream(w); rig.Say(w, rig.Chunk("a")) },
	} {
		for by, cancel := range map[string]func(id string) request{
			"by id":     func(id string) request { return request{method: "POST", path: "/llm/cancel/" + id} },
			"by DELETE": func(id string) request { return request{method: "DELETE", path: "/llm/streams/" + id} },
			"by key":    func(string) request { return request{method: "POST", path: "/llm/cancel?idempotency_key=k"} },
		} {
			t.Run(name+" "+by, func(t *testing.T) {
				here, left := make(chan struct{}), make(chan time.Time, 1)
				c, _ := keep(t, "owner anyone\nchannel {http.request.header.X-Chat-Id}", func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					begin(w)
					close(here)
					<-r.Context().Done()
					left <- time.Now()
				})
				channel := rig.NewFrameReader(get("/llm/channels/c1").do(t, c).Body)
				answered := make(chan *http.Response, 1)
				go func() {
					resp, err := post(`{"stream":true}`, "Idempotency-Key", "k", "X-Chat-Id", "c1").try(t.Context(), c)
					if err != nil {
						t.Error(err)
					}
					answered <- resp
				}()
				<-here
				var started struct {
					ResponseID string `json:"response_id"`
				}
				if err := json.Unmarshal([]byte(frames(t, channel, 1)[0].Data), &started); err != nil {
					t.Fatal(err)
				}
				var first *http.Response
				if name == "in mid-stream" {
					first = <-answered
				}
				follower := rig.NewFrameReader(get("/llm/streams/"+started.ResponseID).do(t, c).Body)
				at := time.Now()
				resp := cancel(started.ResponseID).do(t, c)
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"status":"cancelled"`) {
					t.Errorf("%d %s", resp.StatusCode, body)
				}
				select {
				case when := <-left:
					if d := when.Sub(at); d > 100*time.Millisecond {
						t.Errorf("the upstream was closed after %v", d)
					}
				case <-time.After(patience):
					t.Fatal("the upstream still runs")
				}
				equal(t, "follower's end", lastData(frames(t, follower, -1)), `{"finish_reason":"cancelled"}`)
				if first == nil {
					first = <-answered
				}
				checkCancelled(t, name, first)
				resp = cancel(started.ResponseID).do(t, c)
				equal(t, "again", resp.StatusCode, http.StatusOK)
			})
		}
	}
}

func checkCancelled(t *testing.T, stage string, resp *http.Response) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	if stage != "in mid-stream" {
		equal(t, "status", resp.StatusCode, 499)
		equal(t, "code", errorCode(t, resp), "cancelled")
		return
	}
	equal(t, "end", lastData(frames(t, rig.NewFrameReader(resp.Body), -1)), `{"finish_reason":"cancelled"}`)
}

func lastData(list []rig.Frame) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1].Data
}

// A prompt can be large and its answer takes long: once it was sent, nothing
// holds it.
func TestRequestBodiesAreNotHeld(t *testing.T) {
	const requests, size = 16, 4 << 20
	end := make(chan struct{})
	defer close(end)
	c, _ := keep(t, "", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("a"))
		<-end
		rig.Say(w, rig.Stop)
	})
	body := `{"stream":true,"prompt":"` + strings.Repeat("x", size) + `"}`
	before := heap()
	for range requests {
		if f, err := rig.NewFrameReader(post(body).do(t, c).Body).Next(); err != nil || f.Event != "" {
			t.Fatal(f, err)
		}
	}
	eventually(t, "the bodies are gone", func() bool { return heap() < before+requests*size/4 })
}
