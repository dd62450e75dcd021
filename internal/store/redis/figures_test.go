package redis_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// counter counts calls and measures batches.
type counter struct {
	store.NopMetrics
	calls, batches atomic.Int64
}

func (c *counter) Call(name string, _ time.Duration, _ error) {
	if name != "beat" && name != "subscribe" {
		c.calls.Add(1)
	}
}

func (c *counter) Batch(int, int) { c.batches.Add(1) }

// At 50 tokens a second: how often Redis is called, and what it keeps.
func TestFigures(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const tokens = 200 // 4 s
	for _, followed := range []bool{false, true} {
		count := &counter{}
		a, b := store.Join(open(t, server.URL()), count), store.Join(open(t, server.URL()), nil)
		spec := &store.Spec{ID: fanout.NewID(), Access: fanout.Access{Scope: "h"}, Dialect: "text", Started: time.Now(), Keep: time.Minute}
		begun, err := a.Begin(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		log := storetest.NewLog()
		w := a.Write(spec, begun.Ref, log, storetest.NewOwner())
		if followed {
			if _, _, err := b.Follow(t.Context(), spec.ID, spec.Access, storetest.NewLog()); err != nil {
				t.Fatal(err)
			}
		}
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			if n, _ := log.Len(); n == tokens {
				break
			}
			log.Add(event.Event{Kind: event.Text, Text: []byte(" word")})
			w.Appended(1, 5)
		}
		live := memory(server, spec.ID)
		log.Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}})
		w.Ended()
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := count.calls.Load()
		t.Logf("followed %v: %d calls for %d tokens in %v: %d bytes live, %d compacted",
			followed, calls, tokens, time.Since(spec.Started), live, memory(server, spec.ID))
		const extra = 5 // begin, the first batch, finish, and what check may cost
		if most := int64(time.Since(spec.Started)/(100*time.Millisecond)) + extra; !followed && calls > most {
			t.Errorf("%d calls, want at most %d", calls, most)
		}
		closeAll(t, a, b)
	}
}

func closeAll(t *testing.T, replicas ...*store.Replica) {
	t.Helper()
	for _, r := range replicas {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// memory is what Redis holds of a response, in bytes.
func memory(server *redistest.Server, id string) int {
	sum := 0
	for _, suffix := range []string{"m", "s", "c", "t"} {
		n, _ := strconv.Atoi(server.Do("MEMORY", "USAGE", "llm:{"+id+"}:"+suffix, "SAMPLES", "0"))
		sum += n
	}
	return sum
}

// What Redis holds of 1,000 tokens, in the batches that 50 tokens a second make.
func TestMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := open(t, server.URL())
	for _, perBatch := range []int{5, 2} {
		spec := &store.Spec{
			ID: fanout.NewID(), Access: fanout.Access{Scope: "chat.example.com", Owner: "user-4711"},
			Dialect: "text", Replica: fanout.NewID(), Started: time.Now(), Keep: time.Minute,
		}
		begun, err := db.Begin(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		var events []event.Event
		about := &store.About{Format: "openai_chat", Model: "llama3.2:3b", Header: map[string][]string{"X-Request-Id": {fanout.NewID()}}}
		for first := 1; first <= 1000; first += perBatch {
			part := make([]event.Event, perBatch)
			for i := range part {
				part[i] = event.Event{Kind: event.Text, Text: []byte(" word")}
			}
			events = append(events, part...)
			data, err := store.Encode(nil, first, part)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Append(t.Context(), begun.Ref, store.Batch{
				First: first, Last: first + perBatch - 1, Data: data, About: about,
			}); err != nil {
				t.Fatal(err)
			}
			about = nil
		}
		live := memory(server, spec.ID)
		end := event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop, Usage: &event.TokenUsage{Input: 20, Output: 1000}}}
		last, err := store.Encode(nil, 1001, []event.Event{end})
		if err != nil {
			t.Fatal(err)
		}
		compact, err := store.Encode(nil, 1, append(events, end))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Finish(t.Context(), begun.Ref, store.Final{
			Batch: store.Batch{First: 1001, Last: 1001, Data: last}, Status: fanout.Completed, Compact: compact,
		}); err != nil {
			t.Fatal(err)
		}
		compacted := memory(server, spec.ID)
		t.Logf("%d tokens a batch: %d bytes live, %d compacted", perBatch, live, compacted)
		if live > 16<<10 && perBatch == 5 {
			t.Errorf("%d bytes live", live)
		}
		if compacted > 9<<10 {
			t.Errorf("%d bytes compacted", compacted)
		}
	}
}

// 5,000 responses that are followed on another replica: no more connections than
// for one, and every event comes.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	const followers, workers = 5000, 32
	server := redistest.Start(t)
	db := open(t, server.URL())
	a, b := store.Join(db, nil), store.Join(open(t, server.URL()), nil)
	logs := make([]*storetest.Log, followers)
	writers := make([]*store.Writer, followers)
	copies := make([]*storetest.Log, followers)
	var connections []int
	each := func(f func(i int)) {
		var running sync.WaitGroup
		for worker := range workers {
			running.Go(func() {
				for i := worker; i < followers; i += workers {
					f(i)
				}
			})
		}
		running.Wait()
		connections = append(connections, strings.Count(server.Do("CLIENT", "LIST"), "name=caddy-llmstream"))
	}
	begin := time.Now()
	each(func(i int) {
		spec := &store.Spec{ID: fanout.NewID(), Access: fanout.Access{Scope: "h"}, Dialect: "text", Started: time.Now(), Keep: time.Minute}
		begun, err := a.Begin(t.Context(), spec)
		if err != nil {
			t.Error(err)
			return
		}
		logs[i], copies[i] = storetest.NewLog(), storetest.NewLog()
		writers[i] = a.Write(spec, begun.Ref, logs[i], storetest.NewOwner())
		if _, _, err := b.Follow(t.Context(), spec.ID, spec.Access, copies[i]); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d followers after %v", followers, time.Since(begin))
	if t.Failed() {
		return
	}
	for range 3 {
		each(func(i int) {
			logs[i].Add(event.Event{Kind: event.Text, Text: []byte(" word")})
			writers[i].Appended(1, 5)
		})
	}
	each(func(i int) {
		logs[i].Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}})
		writers[i].Ended()
	})
	each(func(i int) {
		select {
		case <-copies[i].Over():
		case <-time.After(hang):
			t.Error("hangs")
		}
		if diff := copies[i].Diff(logs[i]); diff != "" || copies[i].Err() != nil {
			t.Errorf("%v: %s", copies[i].Err(), diff)
		}
	})
	t.Logf("all over after %v; connections %v", time.Since(begin), connections)
	if slices.Max(connections) > 4 {
		t.Errorf("connections: %v, want at most two for each replica", connections)
	}
	closeAll(t, a, b)
}

// How much later an event is on another replica than here.
func BenchmarkRemoteFollower(b *testing.B) {
	server := redistest.Start(b)
	producer, reader := store.Join(open(b, server.URL()), nil), store.Join(open(b, server.URL()), nil)
	var took []time.Duration
	for b.Loop() {
		spec := &store.Spec{ID: fanout.NewID(), Access: fanout.Access{Scope: "h"}, Dialect: "text", Started: time.Now(), Keep: time.Minute}
		begun, err := producer.Begin(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		log, copied := storetest.NewLog(), storetest.NewLog()
		w := producer.Write(spec, begun.Ref, log, storetest.NewOwner())
		if _, _, err := reader.Follow(b.Context(), spec.ID, spec.Access, copied); err != nil {
			b.Fatal(err)
		}
		_, grown := copied.Len()
		at := time.Now()
		log.Add(event.Event{Kind: event.Text, Text: []byte(" word")})
		w.Appended(1, 5)
		<-grown
		took = append(took, time.Since(at))
		w.Close()
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100])/float64(time.Millisecond), fmt.Sprintf("ms/p%d", p))
	}
	_ = producer.Close(b.Context())
	_ = reader.Close(b.Context())
}
