package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// A response that we end ourselves says nothing about the upstream: reverse_proxy
// must not take it for down, nor try again.
func TestOurCancelsAreNoFailuresOfTheUpstream(t *testing.T) {
	for way, options := range waysToServe {
		t.Run(way, func(t *testing.T) {
			backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Header.Get("X-Silent") != "" {
					<-r.Context().Done()
					return
				}
				whole3(w, r)
			})
			c := rig.Start(t, "ADDR {\nllm_stream {\ntimeouts {\nfirst_token 100ms\n}\n"+options+"}\nreverse_proxy "+backend.Addr+` {
				fail_duration 1m
				lb_try_duration 2s
				lb_retry_match {
					method POST
				}
			}
			}`)
			begin := time.Now()
			equal(t, "a silent model", post(`{"stream":true}`, "X-Silent", "1").do(t, c).StatusCode, http.StatusGatewayTimeout)
			if took := time.Since(begin); took > atLatest(1500*time.Millisecond) {
				t.Errorf("it took %v", took)
			}
			equal(t, "the next request", post(`{"stream":true}`).do(t, c).StatusCode, http.StatusOK)
			equal(t, "upstream calls", backend.Calls.Load(), 2)
		})
	}
}

// What passes through goes on when the decoder cannot follow it any more: an
// event may be too large for it, or in no format that it knows.
func TestPassthroughOutlivesTheDecoder(t *testing.T) {
	event := "data: {\"no\":\"format\"}\n\n"
	for name, start := range map[string]string{
		"an event that is too large":  rig.Chunk("a") + rig.Chunk(strings.Repeat("x", 2<<20)),
		"an event that is broken":     rig.Chunk("a") + "data: {\"choices\":[\n\n",
		"a format that nobody knows":  strings.Repeat(event, 20), // more than may lead to one that is known
		"events after the terminator": rig.Chunk("a") + rig.Stop,
	} {
		t.Run(name, func(t *testing.T) {
			const n = 12
			c, _ := serve(t, "emit passthrough\nmax_event 1MiB\nheartbeat 20ms\ntimeouts {\nfirst_token 300ms\nbetween_tokens 300ms\n}", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rig.EventStream(w)
				rig.Say(w, start)
				for range n {
					time.Sleep(30 * time.Millisecond)
					rig.Say(w, event)
				}
			})
			got, err := body(t, post(`{"stream":true}`).do(t, c))
			got = strings.ReplaceAll(got, ": ping\n", "") // as long as the format may still become known
			if err != nil || got != start+strings.Repeat(event, n) {
				t.Errorf("%d bytes of %d, then %v", len(got), len(start)+n*len(event), err)
			}
		})
	}
}

// How a passed-through stream has ended is counted.
func TestOutcomesOfPassthrough(t *testing.T) {
	for outcome, end := range map[string]http.HandlerFunc{
		"upstream_truncated":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"between_tokens_timeout": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"done":                   func(w http.ResponseWriter, _ *http.Request) { rig.Say(w, rig.Stop) },
	} {
		t.Run(outcome, func(t *testing.T) {
			backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rig.EventStream(w)
				rig.Say(w, rig.Chunk("a"))
				time.Sleep(20 * time.Millisecond) // so that the header is not lost with the connection
				end(w, r)
			})
			c := rig.Start(t, fmt.Sprintf(withMetrics, "emit passthrough\ntimeouts {\nbetween_tokens 200ms\n}", backend.Addr))
			before := atRest(t, c)
			_, err := body(t, post(`{"stream":true}`).do(t, c))
			equal(t, "aborted", err != nil, outcome != "done")
			label := `streams_total{format="openai-chat",outcome="` + outcome + `"}`
			eventually(t, "it is counted", func() bool { return scrape(t, c)[label]-before[label] == 1 })
		})
	}
}

// What is no stream is counted as none, also where its client is quick to leave.
func TestAnswersThatAreNoStreamsAreNotCounted(t *testing.T) {
	answer := `"` + strings.Repeat("x", 60_000) + `"`
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	c := rig.Start(t, fmt.Sprintf(withMetrics, "", backend.Addr))
	name := `streams_total{format="unknown",outcome="client_gone"}`
	before := atRest(t, c)[name]
	for range 50 {
		resp := post(`{}`).do(t, c)
		if _, err := io.ReadFull(resp.Body, make([]byte, len(answer))); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	eventually(t, "all are gone", func() bool { return scrape(t, c)["active_clients"] == 0 })
	equal(t, name, scrape(t, c)[name]-before, 0)
}

// A compressed stream of an unknown format that is cut is not given a clean end.
func TestCutCompressionOfAnUnknownStream(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for i := range 2000 {
		_, _ = fmt.Fprintf(z, "data: {\"n\":%d}\n\n", i*i)
	}
	_ = z.Close()
	for way, options := range waysToServe {
		t.Run(way, func(t *testing.T) {
			c, _ := serve(t, options, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Encoding", "gzip")
				rig.EventStream(w)
				rig.Say(w, zipped.String()[:zipped.Len()/2])
			})
			if got, err := body(t, post(`{"stream":true}`).do(t, c)); err == nil {
				t.Errorf("a clean end after %d bytes", len(got))
			}
		})
	}
}

// A client that never sends the rest of its request holds no place once its
// response has ended.
func TestStalledUploadHoldsNoPlace(t *testing.T) {
	for way, options := range waysToServe {
		if way == "resumable" {
			continue // there a request is read whole before it takes a place
		}
		t.Run(way, func(t *testing.T) {
			c := rig.Start(t, "ADDR {\nllm_stream {\nmax_streams 1\n"+options+"}\nheader Content-Type text/event-stream\nrespond <<SSE\n"+rig.Chunk("a")+rig.Stop+"SSE\n}")
			stallHTTP1(t, c.Addr, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{}")
			eventually(t, "there is a place", func() bool {
				resp := post(`{}`).do(t, c)
				return resp.StatusCode == http.StatusOK
			})
		})
	}
}

// A status without a body is none of ours.
func TestNoContentPasses(t *testing.T) {
	for way, options := range waysToServe {
		c, _ := serve(t, options, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		equal(t, way, post(`{}`).do(t, c).StatusCode, http.StatusNoContent)
	}
}
