package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// trial is a case in one dialect, and what was wrong with it.
type trial struct {
	c       *corpus.Case
	dialect string
	route   string
	want    corpus.Answer
	wrong   [3]string // by cut
}

// Every case gives the same right answer in each dialect that it names, however
// the backend's bytes are cut.
func TestCases(t *testing.T) {
	cases := corpus.Cases(t)
	backend := play{}
	var sites routes
	var trials []*trial
	for _, c := range cases {
		backend[c.Name] = c
		for _, dialect := range dialectsOf(c) {
			trials = append(trials, &trial{c: c, dialect: dialect, route: sites.nameOf(c), want: c.Wanted(t, dialect)})
		}
	}
	b := rig.NewBackend(t, backend.ServeHTTP)
	caddy := rig.Start(t, sites.caddyfile(b.Addr))
	runAll(t.Context(), caddy.Addr, trials)
	kinds := map[string][2]int{}
	for _, tr := range trials {
		n := kinds[tr.c.Kind]
		n[1]++
		if tr.check(t) {
			n[0]++
		}
		kinds[tr.c.Kind] = n
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%-20s %3d of %3d right", kind, kinds[kind][0], kinds[kind][1])
	}
}

// check reports a trial, and whether it came out right.
func (tr *trial) check(t *testing.T) bool {
	t.Helper()
	right := tr.wrong == [3]string{}
	t.Run(tr.c.Name+"/"+tr.dialect, func(t *testing.T) {
		if !right {
			t.Errorf("%s\nwhole:  %s\nrandom: %s\nbytes:  %s", tr.c.Why, tr.wrong[0], tr.wrong[1], tr.wrong[2])
		}
	})
	return right
}

// atOnce is how many requests run beside one another: most of them wait.
const atOnce = 24

// runAll sends every trial once for each cut.
func runAll(ctx context.Context, addr string, trials []*trial) {
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, tr := range trials {
		for i, cut := range cuts {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				tr.wrong[i] = tr.try(ctx, addr, cut)
			})
		}
	}
	wg.Wait()
	// A machine that is busy with the others may be late for the limits of a
	// case, so that such a one is tried again alone.
	for _, tr := range trials {
		for i, cut := range cuts {
			if tr.wrong[i] != "" && tr.c.Route["between_tokens"] != "" {
				tr.wrong[i] = tr.try(ctx, addr, cut)
			}
		}
	}
}

// dialectsOf returns the dialects that a case names.
func dialectsOf(c *corpus.Case) []string {
	dialects := []string{"text"}
	for dialect := range c.WantDialects {
		dialects = append(dialects, dialect)
	}
	slices.Sort(dialects)
	return dialects
}

// try sends a case once and returns what is wrong with the answer.
func (tr *trial) try(ctx context.Context, addr, cut string) string {
	c, want, dialect := tr.c, tr.want, tr.dialect
	r, err := send(ctx, addr, c, tr.route, dialect, cut)
	if err != nil {
		return err.Error()
	}
	for name, value := range want.Headers {
		if got := r.header.Get(name); got != value {
			return fmt.Sprintf("%s is %q, want %q", name, got, value)
		}
	}
	switch {
	case want.Raw:
		return checkRaw(c, want, r)
	case want.BeforeMS > 0 && r.took > atLatest(time.Duration(want.BeforeMS)*time.Millisecond):
		return fmt.Sprintf("it took %v", r.took)
	case want.Status > 0:
		return checkStatus(want, r)
	case r.status != http.StatusOK:
		return fmt.Sprintf("status %d: %.300s", r.status, r.body)
	}
	if diff := checkStream(want, r, dialect); diff != "" || !c.Follow || dialect != "text" {
		return diff
	}
	return checkFollowed(ctx, addr, c, want, r)
}

// checkRaw checks bytes that must have passed as they were.
func checkRaw(c *corpus.Case, want corpus.Answer, r *response) string {
	body := r.body
	if want.Pings != nil && *want.Pings {
		if !bytes.HasPrefix(body, []byte(": ping\n")) {
			return fmt.Sprintf("no ping first: %.100q", body)
		}
		for bytes.HasPrefix(body, []byte(": ping\n")) {
			body = body[len(": ping\n"):]
		}
	} else if contentType := c.ResponseHeaders["Content-Type"]; contentType != nil && r.header.Get("Content-Type") != *contentType {
		return fmt.Sprintf("content type %q", r.header.Get("Content-Type"))
	}
	if !bytes.Equal(body, c.Body()) || r.cut != nil {
		return fmt.Sprintf("status %d, %d bytes of %d, then %v: %.200q", r.status, len(body), len(c.Body()), r.cut, body)
	}
	return ""
}

// checkStatus checks an error that came before anything else.
func checkStatus(want corpus.Answer, r *response) string {
	if r.status != want.Status {
		return fmt.Sprintf("status %d, want %d: %.300s", r.status, want.Status, r.body)
	}
	got, err := corpus.ReadError(r.body)
	if err != nil {
		return err.Error()
	}
	if should := r.header.Get("X-Should-Retry"); should != "" && want.Headers["X-Should-Retry"] == "" {
		return "X-Should-Retry is " + should
	}
	return corpus.Diff(got, want, "error")
}

// checkStream checks a stream of a dialect.
func checkStream(want corpus.Answer, r *response, dialect string) string {
	got, err := corpus.ReadDialect(dialect, string(r.body))
	if err != nil {
		return err.Error()
	}
	if dialect == "plain" {
		got.Terminal = "done"
		if r.cut != nil {
			got.Terminal = "error"
		}
	} else if wrong := corpus.CheckBytes(r.body); wrong != "" {
		return wrong
	}
	return corpus.Diff(got, want, dialect)
}

// maxLine is the longest line that a client which catches up may get, in bytes,
// and maxText the longest text of a frame.
const (
	maxLine = 128 << 10
	maxText = 32 << 10
)

// checkFollowed reads the response once more from its start.
func checkFollowed(ctx context.Context, addr string, c *corpus.Case, want corpus.Answer, first *response) string {
	again := &corpus.Case{Name: c.Name, Path: c.Route["resume"] + "/streams/" + first.header.Get("X-Response-Id")}
	r, err := send(ctx, addr, again, "", "text", "whole")
	if err != nil {
		return err.Error()
	}
	if diff := checkStream(want, r, "text"); diff != "" {
		return "followed: " + diff
	}
	for line := range bytes.Lines(r.body) {
		if len(line) > maxLine {
			return fmt.Sprintf("followed: a line of %d bytes", len(line))
		}
		if text := len(line) - len(`data: {"text":""}`); text > maxText {
			return fmt.Sprintf("followed: a frame with %d bytes of text", text)
		}
	}
	return ""
}
