package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// withMetrics is a Caddyfile that has Caddy's metrics beside llm_stream.
const withMetrics = "ADDR {\n\tmetrics /metrics\n\tllm_stream {\n%s\n\t}\n\treverse_proxy %s\n}"

// scrape reads one metric, with its labels as Prometheus writes them.
func scrape(t *testing.T, c *rig.Caddy) map[string]float64 {
	t.Helper()
	text, err := body(t, get("/metrics").do(t, c))
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for line := range strings.SplitSeq(text, "\n") {
		name, value, found := strings.Cut(line, " ")
		if i := strings.LastIndex(line, " "); i > 0 && strings.HasPrefix(line, "caddy_llm_stream_") {
			name, value, found = line[:i], line[i+1:], true
		}
		var f float64
		if _, err := fmt.Sscan(value, &f); found && err == nil {
			values[strings.TrimPrefix(name, "caddy_llm_stream_")] = f
		}
	}
	return values
}

// atRest is scrape once every response has ended, those of earlier tests as
// well: a response is counted in several metrics while it ends.
func atRest(t *testing.T, c *rig.Caddy) map[string]float64 {
	t.Helper()
	eventually(t, "no stream is active", func() bool { return scrape(t, c)["active_streams"] == 0 })
	return scrape(t, c)
}

// The most expensive mistake is told to whom it costs: a client that reads a
// vendor's format and is sent text deltas. It is none where it gets JSON.
func TestForgottenEmitIsWarnedOf(t *testing.T) {
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Whole") != "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[]}`)
			return
		}
		whole3(w, r)
	})
	const warning = "set emit on this route"
	for _, header := range [][]string{{"User-Agent", "OpenAI/JS 6", "X-Whole", "1"}, {"User-Agent", "curl/8"}} {
		_, _ = body(t, post(`{"stream":true}`, header...).do(t, c))
	}
	if strings.Contains(c.Logs(), warning) {
		t.Errorf("a warning for nothing: %s", c.Logs())
	}
	_, _ = body(t, post(`{"stream":true}`, "User-Agent", "OpenAI/JS 6").do(t, c))
	eventually(t, "it is warned of", func() bool {
		return strings.Contains(c.Logs(), warning) && strings.Contains(c.Logs(), `"client":"OpenAI's SDK","emit":"openai"`)
	})
}

// changed checks by how much metrics have grown.
func changed(t *testing.T, before, after map[string]float64, want map[string]float64) {
	t.Helper()
	for name, grown := range want {
		if got := after[name] - before[name]; got != grown {
			t.Errorf("%s has grown by %v, not %v", name, got, grown)
		}
	}
}

// A known workload, and the counts of every metric after it.
func TestMetrics(t *testing.T) {
	usage := `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\n"
	bodies := map[string]string{
		"good":      rig.Chunk("a") + rig.Chunk("b") + usage + rig.Stop,
		"truncated": rig.Chunk("a"),
		"error":     rig.Chunk("a") + `data: {"error":{"message":"busy"}}` + "\n\n",
	}
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch kind := r.Header.Get("X-Kind"); kind {
		case "json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		case "silent":
			<-r.Context().Done()
		default:
			rig.EventStream(w)
			rig.Say(w, bodies[kind])
		}
	})
	c := rig.Start(t, fmt.Sprintf(withMetrics, "timeouts {\nfirst_token 100ms\n}\nmax_streams off {\nper {header.X-User} 1\n}", backend.Addr))
	before := atRest(t, c)
	received := 0
	for i, kind := range []string{"good", "good", "truncated", "error", "json", "silent"} {
		got, _ := body(t, post(`{"stream":true}`, "X-Kind", kind, "X-User", fmt.Sprint(i)).do(t, c))
		if kind != "silent" {
			received += len(got)
		}
	}
	after := atRest(t, c)
	changed(t, before, after, map[string]float64{
		`streams_total{format="openai-chat",outcome="done"}`:               2,
		`streams_total{format="openai-chat",outcome="upstream_truncated"}`: 1,
		`streams_total{format="openai-chat",outcome="upstream_error"}`:     1,
		`streams_total{format="unknown",outcome="first_token_timeout"}`:    1,
		`deltas_total`:                       6,
		`between_tokens_seconds_count`:       2,
		`first_token_seconds_count`:          4,
		`duration_seconds_count`:             5,
		`tokens_total{direction="input"}`:    6,
		`tokens_total{direction="output"}`:   4,
		`upstream_bytes_total`:               float64(2*len(bodies["good"]) + len(bodies["truncated"]) + len(bodies["error"])),
		`client_bytes_total`:                 float64(received),
		`active_streams`:                     0,
		`rejected_total{reason="key_limit"}`: 0,
	})
	equal(t, "active streams", after["active_streams"], 0)
	equal(t, "queued", after["queued"], 0)

	c.Load(fmt.Sprintf(withMetrics, "", backend.Addr)) // counts go on over a reload
	changed(t, after, scrape(t, c), map[string]float64{`streams_total{format="openai-chat",outcome="done"}`: 0})

	text, _ := body(t, get("/metrics").do(t, c))
	problems, err := promlint.New(strings.NewReader(ours(text))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

// ours returns the lines of a scrape that are this module's.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "caddy_llm_stream_") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// bifrost#5836, llama-swap#1029: three ways to end, three outcomes.
func TestOutcomesOfTheClient(t *testing.T) {
	for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm {\ngrace 20ms\n}\n" + quickDrain, "tied": "slow_client disconnect"} {
		t.Run(mode, func(t *testing.T) {
			backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rig.EventStream(w)
				rig.Say(w, rig.Chunk("a"))
				<-r.Context().Done()
			})
			c := rig.Start(t, fmt.Sprintf(withMetrics, options, backend.Addr))
			before := atRest(t, c)
			resp := post(`{}`).do(t, c)
			frames(t, rig.NewFrameReader(resp.Body), 1)
			_ = resp.Body.Close()
			name := `streams_total{format="openai-chat",outcome="client_gone"}`
			eventually(t, "client_gone is counted", func() bool { return scrape(t, c)[name]-before[name] == 1 })
			atRest(t, c)
		})
	}
}

func TestAccessLogAndPlaceholders(t *testing.T) {
	backend := rig.NewBackend(t, whole(rig.Chunk("a")+rig.Chunk("b")+rig.Stop))
	c := rig.Start(t, `ADDR {
		log
		log_append outcome {http.llm_stream.outcome}
		log_append model {http.llm_stream.model}
		llm_stream
		reverse_proxy `+backend.Addr+`
	}`)
	resp := post(`{}`).do(t, c)
	rig.ReadAnswer(t, resp.Body)
	var entry struct {
		Msg       string
		Outcome   string
		Model     string
		LLMStream map[string]any `json:"llm_stream"`
	}
	eventually(t, "the request is logged", func() bool {
		for line := range strings.SplitSeq(c.Logs(), "\n") {
			if strings.Contains(line, `"handled request"`) && json.Unmarshal([]byte(line), &entry) == nil {
				return true
			}
		}
		return false
	})
	equal(t, "placeholders", entry.Outcome+" "+entry.Model, "done m")
	for field, want := range map[string]any{
		"response_id": resp.Header.Get("X-Response-Id"), "format": "openai-chat", "model": "m", "outcome": "done", "deltas": 2.0,
	} {
		equal(t, field, entry.LLMStream[field], want)
	}
	for _, field := range []string{"first_token_ms", "duration_ms", "upstream_bytes", "client_bytes"} {
		if n, ok := entry.LLMStream[field].(float64); !ok || n <= 0 {
			t.Errorf("%s is %v", field, entry.LLMStream[field])
		}
	}
}

// Who is on call sees what runs, and can stop it.
func TestAdminAPI(t *testing.T) {
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("a"), rig.Chunk("b"))
		<-r.Context().Done()
	})
	admin := rig.FreeAddr(t)
	for mode, options := range map[string]string{"attached": "", "resumable": "resume /llm"} {
		t.Run(mode, func(t *testing.T) {
			c := rig.Start(t, "{\n\tadmin "+admin+"\n}\nADDR {\n\tllm_stream {\n"+options+"\n\t}\n\treverse_proxy "+backend.Addr+"\n}")
			api := &rig.Caddy{Addr: admin}
			resp := post(`{}`).do(t, c)
			fr := rig.NewFrameReader(resp.Body)
			frames(t, fr, 2)
			id := resp.Header.Get("X-Response-Id")
			text, _ := body(t, get("/llm_stream/streams").do(t, api))
			var streams []struct {
				ID, State, Format, Model, Emit string
				AgeMS                          int64 `json:"age_ms"`
				Events, Followers              int
				SlowestLag                     int `json:"slowest_lag"`
			}
			if err := json.Unmarshal([]byte(text), &streams); err != nil || len(streams) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			s := streams[0]
			equal(t, "stream", fmt.Sprint(s.ID, s.State, s.Format, s.Model, s.Emit, s.Events, s.Followers, s.SlowestLag),
				fmt.Sprint(id, "in_progress", "openai-chat", "m", "text", 2, 1, 0))
			at := time.Now()
			cancel := request{method: "POST", path: "/llm_stream/streams/" + id + "/cancel"}
			equal(t, "status", cancel.do(t, api).StatusCode, http.StatusAccepted)
			equal(t, "end", lastData(frames(t, fr, -1)), `{"finish_reason":"cancelled"}`)
			within(t, "cancelling", time.Since(at), 0)
			eventually(t, "it is off the list", func() bool { return cancel.do(t, api).StatusCode == http.StatusNotFound })
		})
	}
}
