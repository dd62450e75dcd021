package deliver_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/deliver"
	"github.com/caddy-llmstream/caddy-llmstream/internal/enginetest"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

const ping = ": ping\n"

// A heartbeat commits a response that nothing has begun, breaks no frame and
// uses up no index.
func TestHeartbeatBetweenFrames(t *testing.T) {
	t.Parallel()
	c := connect(t)
	f := c.follow(deliver.Pace{Policy: deliver.SlowBlock, Events: 64})
	c.Beat()
	equal(t, "status", c.Status(), http.StatusOK)
	equal(t, "content type", c.Got().Get("Content-Type"), "text/event-stream; charset=utf-8")
	c.say(t, "a")
	step(t, f)
	c.Beat()
	c.say(t, "b")
	c.log.End(done)
	step(t, f)
	c.Beat() // after the end
	equal(t, "body", c.Body(), ping+frame(1, "a")+ping+frame(2, "b")+doneFrame(3))
}

// A response that is to fail, or has been sealed, is not committed by a
// heartbeat.
func TestHeartbeatDoesNotCommit(t *testing.T) {
	t.Parallel()
	t.Run("what is sealed", func(t *testing.T) {
		t.Parallel()
		c := connect(t)
		equal(t, "committed", c.Seal(), false)
		c.Beat()
		equal(t, "status", c.Status(), 0)
		equal(t, "committed", c.Seal(), false)
	})
	t.Run("what has failed", func(t *testing.T) {
		t.Parallel()
		c := connect(t)
		f := c.follow(deliver.Pace{})
		c.log.End(truncated)
		step(t, f)
		c.Beat()
		equal(t, "status", c.Status(), 0)
		f.Conclude(c.request, false)
		equal(t, "status", c.Status(), http.StatusBadGateway)
	})
	t.Run("but may have done so before", func(t *testing.T) {
		t.Parallel()
		c := connect(t)
		c.Beat()
		equal(t, "committed", c.Seal(), true)
		if c.Pass(http.StatusOK, http.Header{}, false, false) != nil {
			t.Error("another response can still be passed")
		}
	})
}

// What passes as it is has heartbeats only where it takes comments, and then
// only between its frames.
func TestHeartbeatInWhatPasses(t *testing.T) {
	t.Parallel()
	stream := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
	for name, tc := range map[string]struct {
		header           http.Header
		stream, comments bool
		body             string
		beats            int
	}{
		"at the beginning":       {stream, true, true, "", 1},
		"between frames":         {stream, true, true, "data: a\n\n", 1},
		"between frames, CRLF":   {stream, true, true, "data: a\r\n\r\n", 1},
		"between frames, CR":     {stream, true, true, "data: a\r\r", 1},
		"in a line":              {stream, true, true, "data: a", 0},
		"in a frame":             {stream, true, true, "data: a\n", 0},
		"in a frame, CRLF":       {stream, true, true, "data: a\r\n", 0},
		"in a cut CRLF":          {stream, true, true, "data: a\r\n\r", 0},
		"without comments":       {stream, true, false, "data: a\n\n", 0},
		"in another format":      {http.Header{"Content-Type": {"application/x-ndjson"}}, true, true, "{}\n\n", 0},
		"in what is no stream":   {http.Header{"Content-Type": {"application/json"}}, false, false, "{}\n\n", 0},
		"in what names no type":  {http.Header{}, true, true, "data: a\n\n", 0},
		"in a stream of no kind": {stream, false, true, "data: a\n\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for piece := 1; piece <= max(1, len(tc.body)); piece++ {
				c := connect(t)
				w := c.Pass(http.StatusOK, tc.header, tc.stream, tc.comments)
				for rest := tc.body; rest != ""; {
					n := min(piece, len(rest))
					_, _ = w.Write([]byte(rest[:n]))
					rest = rest[n:]
				}
				_ = http.NewResponseController(w).Flush()
				c.Beat()
				equal(t, "heartbeats", c.Heartbeats(), tc.beats)
				equal(t, "header", c.Got().Get("X-Response-Id"), "")
			}
		})
	}
}

// A heartbeat that finds a write going on leaves it alone: there is no silence,
// and nothing waits for a client that takes nothing.
func TestHeartbeatDoesNotWaitForAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
		c.say(t, "a")
		c.Stall()
		go func() { _ = f.Step() }()
		synctest.Wait()
		c.Beat()
		c.Expect(http.StatusOK, http.Header{"X-Late": {"1"}}) // nor does a producer
		c.WantUsage(true)
		c.Seal()
		c.TakeAll()
		synctest.Wait()
		equal(t, "body", c.Body(), frame(1, "a"))
	})
}

// A heartbeat that blocks in its write holds up nothing but its own connection:
// a producer can tell the header, seal, and put events into the log.
func TestHeartbeatThatBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		c.Stall()
		go c.Beat()
		synctest.Wait()
		c.Expect(http.StatusOK, http.Header{"X-Late": {"1"}})
		equal(t, "committed", c.Seal(), true)
		c.say(t, "a")
		f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
		equal(t, "passes", c.Passes(), false)
		equal(t, "over", f.Over(), false)
		c.TakeAll()
		synctest.Wait()
		step(t, f)
		equal(t, "body", c.Body(), ping+frame(1, "a"))
	})
}

// Each write to the client begins its silence anew.
func TestWritesPutHeartbeatsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		f := c.follow(deliver.Pace{Policy: deliver.SlowCoalesce, Events: 64})
		watch := timeouts.New(timeouts.Limits{Heartbeat: 10 * time.Second}, nil, c.Beat)
		defer watch.StopAndWait()
		c.Beats(watch)
		watch.EnableHeartbeat()
		time.Sleep(7 * time.Second)
		c.say(t, "a")
		step(t, f)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := []enginetest.Arrival{{At: 7 * time.Second, Data: frame(1, "a")}, {At: 17 * time.Second, Data: ping}, {At: 27 * time.Second, Data: ping}}
		if got := c.Arrivals(); len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
