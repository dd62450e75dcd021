package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Bench is what `caddy llm-stream bench` is told.
type Bench struct {
	URL         string
	Headers     []string // "Name: value"
	Body        []byte   // of each request
	Requests    int      // at least 1
	Concurrency int      // how many at the same time; at least 1
	// Client sends the requests; nil is one with as many connections as that.
	Client *http.Client
}

// sample is what came of one request.
type sample struct {
	failure string        // empty where the response was whole
	first   time.Duration // to the first output of the model
	gaps    []time.Duration
	outputs int
	bytes   int64
}

// progressEvery is how often the progress line is drawn.
const progressEvery = 200 * time.Millisecond

// Run sends the requests and prints a table. The error is one of what was asked
// for, or that no response was whole.
func (b *Bench) Run(ctx context.Context, terminal *Terminal) error {
	header, err := parseHeader(b.Headers)
	if err != nil {
		return err
	}
	if b.Requests < 1 || b.Concurrency < 1 {
		return errors.New("there is nothing to do: requests and concurrency begin at 1")
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	client := b.Client
	if client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = b.Concurrency
		defer transport.CloseIdleConnections()
		client = &http.Client{Transport: transport}
	}
	begin := time.Now()
	samples := b.all(ctx, terminal, client, header)
	r := summarize(samples, time.Since(begin))
	_, _ = io.WriteString(terminal.Out, r.table())
	if r.whole == 0 {
		return errors.New("no response was whole")
	}
	return nil
}

// all sends every request, a number of them at the same time, and returns what
// came of those that were sent before ctx ended.
func (b *Bench) all(ctx context.Context, terminal *Terminal, client *http.Client, header http.Header) []sample {
	samples := make([]sample, b.Requests)
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range min(b.Concurrency, b.Requests) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < b.Requests && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				samples[i] = b.one(ctx, client, header)
				done.Add(1)
			}
		})
	}
	stop := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { b.progress(terminal, &done, stop) })
	workers.Wait()
	close(stop)
	progress.Wait()
	return samples[:min(int(next.Load()), b.Requests)]
}

// progress draws a line of how far it is, on a terminal.
func (b *Bench) progress(terminal *Terminal, done *atomic.Int64, stop <-chan struct{}) {
	if !terminal.Live {
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		_, _ = fmt.Fprintf(terminal.Err, "\r\x1b[2K%d of %d responses", done.Load(), b.Requests)
		select {
		case <-stop:
			_, _ = io.WriteString(terminal.Err, "\r\x1b[2K")
			return
		case <-tick.C:
		}
	}
}

// one sends a request and reads the response to its end.
func (b *Bench) one(ctx context.Context, client *http.Client, header http.Header) (s sample) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL, bytes.NewReader(b.Body))
	if err != nil {
		s.failure = err.Error()
		return s
	}
	req.Header = header.Clone()
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		s.failure = failureOf(err)
		return s
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		s.failure = resp.Status
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		return s
	}
	m := &meter{sample: &s, begin: begin}
	s.failure = m.read(resp, req.URL.Path)
	return s
}

// failureOf is the word for an error under which it is counted: without the
// address, which differs.
func failureOf(err error) string {
	for wrapped := err; wrapped != nil; wrapped = errors.Unwrap(wrapped) {
		err = wrapped
	}
	return err.Error()
}

// meter times the outputs of one response.
type meter struct {
	*sample
	begin, last time.Time
}

// output counts outputs that came together.
func (m *meter) output(n int) {
	if n == 0 {
		return
	}
	now := time.Now()
	if m.outputs == 0 {
		m.first = now.Sub(m.begin)
	} else {
		m.gaps = append(m.gaps, now.Sub(m.last))
	}
	m.last = now
	m.outputs += n
}

// ending returns why the event that ends a response is no good end; empty where
// it is one.
func ending(ev *event.Event) string {
	if ev.Kind == event.Failed {
		return string(ev.Err.Code)
	}
	return ""
}

// report is what a run has shown.
type report struct {
	took     time.Duration
	whole    int
	failures map[string]int
	outputs  int
	bytes    int64
	first    []time.Duration // sorted
	gaps     []time.Duration // sorted
}

func summarize(samples []sample, took time.Duration) *report {
	r := &report{took: took, failures: make(map[string]int)}
	for i := range samples {
		s := &samples[i]
		r.outputs += s.outputs
		r.bytes += s.bytes
		r.gaps = append(r.gaps, s.gaps...)
		if s.outputs > 0 {
			r.first = append(r.first, s.first)
		}
		if s.failure == "" {
			r.whole++
		} else {
			r.failures[s.failure]++
		}
	}
	slices.Sort(r.first)
	slices.Sort(r.gaps)
	return r
}

// percentile returns the value below which p of 100 values lie; 0 where there are
// none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// table returns the report for a person.
func (r *report) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, format string, values ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", values...)
	}
	row("responses", "%d whole in %s", r.whole, seconds(r.took))
	for _, failure := range slices.Sorted(maps.Keys(r.failures)) {
		row("", "%d %s", r.failures[failure], failure)
	}
	row("first token", "p50 %s  p95 %s  p99 %s", seconds(percentile(r.first, 50)), seconds(percentile(r.first, 95)), seconds(percentile(r.first, 99)))
	row("between tokens", "p50 %s  p95 %s  p99 %s", seconds(percentile(r.gaps, 50)), seconds(percentile(r.gaps, 95)), seconds(percentile(r.gaps, 99)))
	row("tokens", "%d, %.1f/s", r.outputs, float64(r.outputs)/r.took.Seconds())
	if r.outputs > 0 {
		row("bytes a token", "%d", r.bytes/int64(r.outputs))
	}
	_ = w.Flush()
	return b.String()
}
