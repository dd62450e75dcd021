package deliver_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// begin begins a response in a registry of its own.
func begin(t *testing.T, spec fanout.Spec) (*fanout.Registry, *fanout.Response) {
	t.Helper()
	registry := fanout.NewRegistry()
	t.Cleanup(func() { _ = registry.Destruct() })
	spec.Dialect, spec.Keep, spec.Grace = "text", time.Minute, time.Minute
	response, _, err := registry.Begin("id", spec)
	if err != nil {
		t.Fatal(err)
	}
	return registry, response
}

// A snapshot is what a response has come to: its texts whole, its status, and
// where to go on.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight, 2000-01-01 UTC
		_, response := begin(t, fanout.Spec{})
		snapshot := func() string {
			c := connect(t)
			if err := c.Snapshot(response); err != nil {
				t.Fatal(err)
			}
			equal(t, "Content-Type", c.Got().Get("Content-Type"), "application/json")
			c.Beat()
			return strings.TrimSuffix(c.Body(), "\n")
		}
		const head = `{"response_id":"id","status":"in_progress","started_at":"2000-01-01T00:00:00.000Z","text":"`
		equal(t, "empty", snapshot(), head+`","last_event_id":"id:0"}`)
		add := func(events ...event.Event) {
			for _, ev := range events {
				if err := response.Append([]event.Event{ev}); err != nil {
					t.Fatal(err)
				}
			}
		}
		add(
			event.Event{Kind: event.Reasoning, Text: []byte("h")}, event.Event{Kind: event.Reasoning, Text: []byte("m")},
			event.Event{Kind: event.Text, Text: []byte(`a\n`)}, event.Event{Kind: event.Text, Text: []byte("other"), Choice: 1},
			event.Event{Kind: event.Text, Text: []byte("b")},
			event.Event{Kind: event.ToolCall, Text: []byte(`{\"x\":`), Tool: event.Tool{ID: "c1", Name: "f"}},
			event.Event{Kind: event.ToolCall, Text: []byte(`1}`)},
			event.Event{Kind: event.ToolCall, Text: []byte(`{}`), Tool: event.Tool{Index: 1, Name: "g"}},
		)
		response.Describe(nil, "", `m"1`)
		const body = `"started_at":"2000-01-01T00:00:00.000Z","model":"m\"1","text":"a\nb","reasoning":"hm",` +
			`"tool_calls":[{"id":"c1","name":"f","arguments":"{\"x\":1}"},{"name":"g","arguments":"{}"}],`
		equal(t, "running", snapshot(), `{"response_id":"id","status":"in_progress",`+body+`"last_event_id":"id:8"}`)
		response.End(done)
		equal(t, "ended", snapshot(), `{"response_id":"id","status":"done",`+body+`"last_event_id":"id:9","finish_reason":"stop"}`)
	})
}

// A snapshot of what has failed says why; one of what is no longer kept is
// refused.
func TestSnapshotOfWhatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, response := begin(t, fanout.Spec{})
		_ = response.Append([]event.Event{{Kind: event.Text, Text: []byte("a")}})
		response.End(truncated)
		c := connect(t)
		if err := c.Snapshot(response); err != nil {
			t.Fatal(err)
		}
		contains(t, c.Body(), `"status":"failed"`)
		contains(t, c.Body(), `"error":{"type":"api_error","code":"upstream_truncated"`)
		time.Sleep(time.Hour)
		c = connect(t)
		if err := c.Snapshot(response); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("error %v", err)
		}
		equal(t, "status", c.Status(), 0)
	})
}

// A client that takes a snapshot slowly holds up no other.
func TestSnapshotOfASlowClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, response := begin(t, fanout.Spec{})
		_ = response.Append([]event.Event{{Kind: event.Text, Text: []byte(strings.Repeat("x", 100<<10))}})
		c := connect(t, writeTimeout(time.Minute))
		c.Stall()
		result := make(chan error, 1)
		go func() { result <- c.Snapshot(response) }()
		synctest.Wait()
		_ = response.Append([]event.Event{{Kind: event.Text, Text: []byte("more")}})
		response.End(done)
		if err := <-result; err == nil {
			t.Error("no error")
		}
	})
}

// A follower of a channel has each response's beginning before its events and its
// end after them, each frame with the response's id, and is told where to go on.
func TestChannelFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry, response := begin(t, fanout.Spec{Channel: "chat"})
		sub, err := registry.Subscribe("chat", fanout.Access{}, true, "")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		c := connect(t, dialect(deliver.DialectChannel))
		f := deliver.NewChannelFollower(c.Conn, sub, pace)
		if err := f.Open(); err != nil {
			t.Fatal(err)
		}
		c.Beat()
		response.Publish()
		_ = response.Append([]event.Event{{Kind: event.Text, Text: []byte("a")}})
		response.Describe(nil, "", "m")
		response.End(done)
		if err := f.Step(); err != nil {
			t.Fatal(err)
		}
		if err := f.Reconnect(event.ReasonExit); err != nil {
			t.Fatal(err)
		}
		var data []string
		for line := range strings.Lines(c.Body()) {
			if !strings.HasPrefix(line, "id: ") && line != "\n" {
				data = append(data, strings.TrimSpace(line))
			}
		}
		equal(t, "frames", strings.Join(data, "\n"), strings.Join([]string{
			`: ping`,
			`event: started`, `data: {"response_id":"id","started_at":"2000-01-01T00:00:00.000Z"}`,
			`data: {"response_id":"id","text":"a"}`,
			`event: done`, `data: {"response_id":"id","finish_reason":"stop"}`,
			`event: ended`, `data: {"response_id":"id","status":"done","model":"m"}`,
			`event: reconnect`, `retry: 2000`, `data: {"reason":"exit","retry_ms":2000}`,
		}, "\n"))
		equal(t, "ids", strings.Count(c.Body(), "id: "), 5)
	})
}
