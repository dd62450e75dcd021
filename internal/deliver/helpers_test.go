package deliver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
)

// The terminal events of the tests.
var (
	done      = &event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}}
	truncated = &event.Event{Kind: event.Failed, Err: &event.Error{Code: event.CodeUpstreamTruncated, Status: 502, Message: "m"}}
)

// connection is a Conn with its client, and a log to follow.
type connection struct {
	*deliver.Conn
	*enginetest.Client // what the client has
	request            *http.Request
	log                *fanout.Stream
	metrics            *observe.Metrics
	config             deliver.Config
}

// connect returns a connection to a client that takes everything.
func connect(t *testing.T, options ...func(*connection)) *connection {
	t.Helper()
	metrics, _ := observe.NewMetrics(func() int { return 0 })
	c := &connection{
		Client: enginetest.NewClient(), request: httptest.NewRequest(http.MethodPost, "/", nil),
		log: fanout.NewStream("id", 0), metrics: metrics,
		config: deliver.Config{
			ResponseID: "id", Dialect: "text", Resumable: true, Metrics: metrics,
			Retry: func() time.Duration { return 2 * time.Second },
		},
	}
	for _, option := range options {
		option(c)
	}
	c.Conn = deliver.NewConn(c.Client, c.request, c.config)
	return c
}

// follow returns a follower of the log from its start.
func (c *connection) follow(pace deliver.Pace) *deliver.Follower {
	return deliver.NewFollower(c.Conn, c.log.Start(), pace)
}

// The options of connect.

func dialect(name string) func(*connection) {
	return func(c *connection) { c.config.Dialect = name }
}

func writeTimeout(d time.Duration) func(*connection) {
	return func(c *connection) { c.config.WriteTimeout = d }
}

func http2(c *connection) { c.request.ProtoMajor = 2 }

// say appends texts to the log, each an event, in one append.
func (c *connection) say(t *testing.T, texts ...string) {
	t.Helper()
	events := make([]event.Event, len(texts))
	for i, text := range texts {
		events[i] = event.Event{Kind: event.Text, Text: []byte(text)}
	}
	if err := c.log.Append(events); err != nil {
		t.Fatal(err)
	}
}

// step lets a follower do a step.
func step(t *testing.T, f *deliver.Follower) {
	t.Helper()
	if err := f.Step(); err != nil {
		t.Fatal(err)
	}
}

// count returns a metric.
func (c *connection) count(t *testing.T, name string) int {
	t.Helper()
	return int(enginetest.Scrape(t, c.metrics)[name])
}

// frame is a frame of the dialect text with a text.
func frame(index int, text string) string {
	return fmt.Sprintf("id: id:%d\ndata: {\"text\":%q}\n\n", index, text)
}

const doneData = "event: done\ndata: {\"finish_reason\":\"stop\"}\n\n"

func doneFrame(index int) string { return fmt.Sprintf("id: id:%d\n", index) + doneData }

// aborts reports whether f aborts the connection.
func aborts(t *testing.T, f func()) (aborted bool) {
	t.Helper()
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(v)
		}
	}()
	f()
	return false
}

// equal compares what something is with what it should be.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// contains checks that a text has a part.
func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is not in %q", part, text)
	}
}
