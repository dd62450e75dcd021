package deliver_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

var pace = deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64, Resumable: true}

// Nothing is committed before the first frame; then status and header are those
// of the upstream, without what speaks of a body that is not sent as it came.
func TestHeaderOfAStream(t *testing.T) {
	t.Parallel()
	c := connect(t)
	c.Header().Set("X-Before", "us")
	upstream := http.Header{
		"X-Upstream": {"1"}, "Content-Type": {"text/plain"}, "Cache-Control": {"private"}, "Content-Length": {"7"}, "Content-Encoding": {"gzip"},
		"Etag": {"x"}, "Last-Modified": {"x"}, "Accept-Ranges": {"bytes"}, "Content-Range": {"x"}, "Content-Md5": {"x"}, "Content-Digest": {"x"},
		"Repr-Digest": {"x"}, "Digest": {"x"}, "Trailer": {"x"},
	}
	c.Expect(http.StatusCreated, upstream)
	f := c.follow(pace)
	step(t, f)
	equal(t, "status before the first frame", c.Status(), 0)
	c.say(t, "a")
	step(t, f)
	equal(t, "status", c.Status(), http.StatusCreated)
	for field, want := range map[string]string{
		"X-Upstream": "1", "X-Before": "", "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no", "Incremental": "?1", "X-Response-Id": "id",
		"Content-Length": "", "Content-Encoding": "", "Etag": "", "Last-Modified": "", "Accept-Ranges": "", "Content-Range": "", "Content-Md5": "",
		"Content-Digest": "", "Repr-Digest": "", "Digest": "", "Trailer": "",
	} {
		equal(t, field, c.Got().Get(field), want)
	}
	c.Header()["X-Upstream"][0] = "changed" // by a handler before us
	equal(t, "header of the upstream", upstream.Get("X-Upstream"), "1")
	equal(t, "flushed", c.Body(), frame(1, "a"))
	equal(t, "position", c.Position(), 1)
	equal(t, "sent", c.Sent(), int64(len(frame(1, "a"))))
}

// Of another client's header only what is of the response is shared, and what
// the own request has set wins.
func TestHeaderOfAnotherClientsResponse(t *testing.T) {
	t.Parallel()
	own := http.Header{"X-Own": {"asker"}, "Vary": {"Origin"}, "Content-Language": {"de"}}
	upstream := http.Header{
		"X-Own": {"asker"}, "Vary": {"Origin", "Accept"}, "Content-Language": {"en"}, "X-Request-Id": {"r"}, "Openai-Model": {"m"},
		"Set-Cookie": {"secret"}, "Www-Authenticate": {"Basic"}, "X-Ratelimit-Remaining-Requests": {"3"}, "Authorization": {"token"},
		"Access-Control-Allow-Origin": {"https://asker"}, "X-Any": {"1"},
	}
	added := deliver.AddedFields(upstream, own)
	c := connect(t)
	c.Header().Set("X-Own", "follower")
	c.Header().Set("Vary", "Cookie")
	c.Header().Set("X-Request-Id", "mine")
	c.Describe(added)
	if err := c.Open(); err != nil {
		t.Fatal(err)
	}
	h := c.Got()
	for field, want := range map[string]string{
		"X-Own": "follower", "Vary": "Cookie,Accept", "Content-Language": "en", "X-Request-Id": "mine", "Openai-Model": "m",
		"Set-Cookie": "", "Www-Authenticate": "", "X-Ratelimit-Remaining-Requests": "", "Authorization": "", "Access-Control-Allow-Origin": "", "X-Any": "",
	} {
		equal(t, field, strings.Join(h[field], ","), want)
	}
	c.Describe(http.Header{"X-Request-Id": {"late"}})
	c.Describe(nil)
	equal(t, "after the commit", c.Header().Get("X-Request-Id"), "mine")
}

// Where a client cannot come back, its ids are the index alone.
func TestIDs(t *testing.T) {
	t.Parallel()
	for resumable, want := range map[bool]string{true: frame(1, "a"), false: "id: 1\ndata: {\"text\":\"a\"}\n\n"} {
		c := connect(t, func(c *connection) { c.config.Resumable = resumable })
		c.say(t, "a")
		step(t, c.follow(pace))
		equal(t, "body", c.Body(), want)
	}
}

// The model is the one that is known at the first event, and the usage what the
// request asks for, whichever is known first.
func TestModelAndUsageOfADialect(t *testing.T) {
	t.Parallel()
	model := ""
	c := connect(t, dialect("openai"), func(c *connection) { c.config.Model = func() string { return model } })
	c.Beat()
	model = "late"
	f := c.follow(pace)
	c.say(t, "a")
	step(t, f)
	contains(t, c.Body(), `"model":"late"`)

	c = connect(t, dialect("openai"))
	c.WantUsage(true)
	f = c.follow(pace)
	c.say(t, "a")
	c.log.End(&event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop, Usage: &event.TokenUsage{Input: 3, Output: 2}}})
	step(t, f)
	contains(t, c.Body(), `"prompt_tokens":3`)
}

// An informational response passes before anything is committed, with its own
// header, and not after.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	c := connect(t)
	c.Header().Set("X-Before", "us")
	c.Inform(http.StatusEarlyHints, http.Header{"Link": {"x"}})
	equal(t, "header that stays", c.Header().Get("X-Before")+c.Header().Get("Link"), "us")
	c.Beat()
	c.Inform(http.StatusEarlyHints, nil)
	if !slices.Equal(c.Informed(), []int{http.StatusEarlyHints}) {
		t.Errorf("informed of %v", c.Informed())
	}
}

// A response that passes has exactly its own header; what is no stream is
// written without anything of ours around it.
func TestPass(t *testing.T) {
	t.Parallel()
	c := connect(t, writeTimeout(time.Second))
	c.Header().Set("X-Before", "us")
	w := c.Pass(http.StatusTeapot, http.Header{"Content-Length": {"3"}}, false, false)
	equal(t, "status", c.Status(), http.StatusTeapot)
	equal(t, "header", len(c.Got()), 1)
	if w != http.ResponseWriter(c.Client) {
		t.Error("what is no stream is wrapped")
	}
	equal(t, "passes", c.Passes(), true)
	f := c.follow(pace)
	c.say(t, "a")
	c.Beat()
	equal(t, "sealed", c.Seal(), true)
	_ = f
	c.Finish()
	equal(t, "body", c.Body(), "")
}

// A backend may answer before it has had the whole request body: on HTTP/1.1 the
// connection is not used again then.
func TestAnswerBeforeTheWholeUpload(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ended, http2 bool
		want         bool
	}{"before": {want: true}, "after": {ended: true}, "on HTTP/2": {http2: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := func(c *connection) {
				c.config.Upload = uploaded(tc.ended)
				if tc.http2 {
					http2(c)
				}
			}
			begin := map[string]func(c *connection){
				"a frame":     func(c *connection) { _ = c.Open() },
				"a heartbeat": func(c *connection) { c.Beat() },
				"a passed stream": func(c *connection) {
					c.Pass(http.StatusOK, http.Header{}, true, false)
				},
			}
			for how, begin := range begin {
				c := connect(t, options)
				begin(c)
				equal(t, how+", full duplex", c.FullDuplex(), tc.want)
				equal(t, how+", closes", c.Got().Get("Connection") == "close", tc.want)
			}
			c := connect(t, options)
			c.Pass(http.StatusOK, http.Header{}, false, false)
			equal(t, "no stream, full duplex", c.FullDuplex(), false)
		})
	}
}

// uploaded says whether the request body was read to its end.
type uploaded bool

// Ended tells it.
func (u uploaded) Ended() bool { return bool(u) }

// A response that fails before anything is committed is answered with a status,
// in the shape of the dialect; one that fails later has an error frame, and in
// the dialects where a clean end would be taken for a good one an aborted
// connection.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		committed bool
		terminal  *event.Event
		status    int
		body      string // a part of it
		aborted   bool
	}{
		"text":                        {false, truncated, 502, `{"error":{"type":"api_error","code":"upstream_truncated"`, false},
		"openai":                      {false, truncated, 502, `"code":"upstream_truncated"`, false},
		"anthropic":                   {false, truncated, 502, `{"type":"error","error":{`, false},
		"plain":                       {false, truncated, 502, `"code":"upstream_truncated"`, false},
		"text, committed":             {true, truncated, 200, "event: error\ndata: {\"error\":{", false},
		"openai, committed":           {true, truncated, 200, `{"error":{`, true},
		"anthropic, committed":        {true, truncated, 200, "event: error\n", true},
		"ai-sdk, committed":           {true, truncated, 200, `"type":"error"`, false},
		"plain, committed":            {true, truncated, 200, "", true},
		"text, cancelled":             {false, event.TerminalCancelled, 499, `"code":"cancelled"`, false},
		"text, cancelled, committed":  {true, event.TerminalCancelled, 200, `"finish_reason":"cancelled"`, false},
		"text, drained, committed":    {true, event.TerminalDraining, 200, `"code":"draining"`, true},
		"openai, drained, committed":  {true, event.TerminalDraining, 200, `"code":"draining"`, true},
		"text, drained":               {false, event.TerminalDraining, 503, `"code":"draining"`, false},
		"text, done, committed":       {true, done, 200, doneData, false},
		"openai, done, committed":     {true, done, 200, "data: [DONE]\n\n", false},
		"ai-sdk, drained, committed":  {true, event.TerminalDraining, 200, `"type":"error"`, true},
		"text, an unbetterable error": {false, event.TerminalNoStream, 502, `"code":"invalid_upstream"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(name, ",")
			c := connect(t, dialect(name))
			c.Header().Set("Content-Length", "7")
			f := c.follow(pace)
			if tc.committed {
				c.Beat()
			}
			c.log.End(tc.terminal)
			step(t, f)
			equal(t, "over", f.Over(), true)
			equal(t, "aborted", aborts(t, func() { f.Conclude(c.request, false) }), tc.aborted)
			c.Finish()
			equal(t, "status", c.Status(), tc.status)
			contains(t, c.Body(), tc.body)
			equal(t, "Retry-After", c.Got().Get("Retry-After") != "", tc.status == 503)
			equal(t, "X-Should-Retry", c.Got().Get("X-Should-Retry") == "false", tc.terminal == event.TerminalNoStream)
			equal(t, "Content-Length", c.Got().Get("Content-Length"), "")
			c.Beat()
			equal(t, "fate", f.Fate(c.request), "")
		})
	}
}

// At the exit deadline an EventSource that was sent nothing is told to come
// back, since it takes any status but 200 for final.
func TestExitDeadlineOfAnEventSource(t *testing.T) {
	t.Parallel()
	c := connect(t)
	c.request.Method = http.MethodGet
	c.request.Header.Set("Accept", "text/event-stream")
	f := c.follow(pace)
	c.log.End(event.TerminalDraining)
	step(t, f)
	equal(t, "aborted", aborts(t, func() { f.Conclude(c.request, false) }), false)
	c.Finish()
	equal(t, "status", c.Status(), http.StatusOK)
	equal(t, "body", c.Body(), "event: reconnect\nretry: 2000\ndata: {\"reason\":\"exit\",\"retry_ms\":2000}\n\n")
}

// An aborted stream on HTTP/2 stays open for a moment, or the client would not
// read what came last.
func TestAbortOnHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		equal(t, "aborted", aborts(t, connect(t).Abort), true)
		equal(t, "took", time.Since(begin), 0)
		equal(t, "aborted", aborts(t, connect(t, http2).Abort), true)
		equal(t, "took", time.Since(begin), 20*time.Millisecond)
	})
}

// A client is told to come back where its dialect has a frame for that, also
// before anything was sent.
func TestReconnect(t *testing.T) {
	t.Parallel()
	c := connect(t)
	f := c.follow(pace)
	equal(t, "told", f.Reconnect(event.ReasonReload), true)
	equal(t, "body", c.Body(), "id: id:0\nevent: reconnect\nretry: 2000\ndata: {\"reason\":\"reload\",\"retry_ms\":2000}\n\n")
	equal(t, "over", f.Over(), true)
	equal(t, "counted", c.count(t, `reconnects_sent_total{reason="reload"}`), 1)
	c.Beat()
	equal(t, "heartbeats after it", c.Heartbeats(), 0)

	c = connect(t, dialect("openai"))
	equal(t, "told", c.follow(pace).Reconnect(event.ReasonReload), false)
	equal(t, "status", c.Status(), 0)
	equal(t, "counted", c.count(t, `reconnects_sent_total{reason="reload"}`), 0)
}

// A client that follows what turns out to be no stream is told so in a frame.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	c := connect(t)
	f := c.follow(pace)
	if err := f.GiveUp(event.TerminalNoStream); err != nil {
		t.Fatal(err)
	}
	contains(t, c.Body(), "event: error\ndata: {\"error\":{\"type\":\"api_error\",\"code\":\"invalid_upstream\"")
	equal(t, "over", f.Over(), true)
}

// What a client did to its response.
func TestFate(t *testing.T) {
	t.Parallel()
	t.Run("it has left", func(t *testing.T) {
		t.Parallel()
		ctx, leave := context.WithCancel(t.Context())
		c := connect(t, func(c *connection) { c.request = c.request.WithContext(ctx) })
		f := c.follow(pace)
		equal(t, "fate before", f.Fate(c.request), "")
		leave()
		equal(t, "fate", f.Fate(c.request), event.OutcomeClientGone)
	})
	t.Run("it has left after the end", func(t *testing.T) {
		t.Parallel()
		ctx, leave := context.WithCancel(t.Context())
		c := connect(t, func(c *connection) { c.request = c.request.WithContext(ctx) })
		f := c.follow(pace)
		c.say(t, "a")
		c.log.End(done)
		step(t, f)
		leave()
		equal(t, "fate", f.Fate(c.request), "")
	})
	t.Run("its connection is broken", func(t *testing.T) {
		t.Parallel()
		c := connect(t)
		c.Break()
		f := c.follow(pace)
		c.say(t, "a")
		if f.Step() == nil {
			t.Error("no error")
		}
		equal(t, "fate", f.Fate(c.request), event.OutcomeClientGone)
	})
	t.Run("it was dismissed", func(t *testing.T) {
		t.Parallel()
		c := connect(t)
		c.Dismiss()
		c.Dismiss()
		equal(t, "counted", c.count(t, `slow_clients_total{action="disconnected"}`), 1)
		equal(t, "fate", c.Fate(c.request), event.OutcomeSlowClient)
	})
}

// The header that a handler has set without a response is for the error routes.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c := connect(t)
	c.Header().Set("X-Before", "us")
	c.Adopt(http.Header{"X-Handler": {"1"}})
	equal(t, "header", c.Header().Get("X-Before")+c.Header().Get("X-Handler"), "1")
	c.Adopt(nil)
	equal(t, "header", c.Header().Get("X-Handler"), "1")
	_ = c.Open()
	c.Adopt(http.Header{"X-Late": {"1"}})
	equal(t, "header", c.Header().Get("X-Late"), "")
}
