package llmstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llmstream/caddy-llmstream/drain"
)

func init() {
	caddy.OnExit(func(context.Context) {
		process.drainers.await()
		leaveStores()
	})
}

// drainers are those of the running configuration, and those of superseded
// ones that have clients. All of them drain when the process exits.
//
// The shutdown of its server tells the running configuration of the exit.
// Nothing tells a superseded one, so as long as there is any, a goroutine
// watches for it.
type drainers struct {
	generations atomic.Uint64 // handlers of a later configuration have a higher number

	mu       sync.Mutex
	set      map[*drainer]struct{}
	watching bool
	began    time.Time     // the exit; zero before
	limit    time.Duration // of all deadlines; 0 is none
}

// graceMargin is how much sooner than Caddy's grace_period the drain deadline
// is, so that every stream has had its end before Caddy cuts it.
const graceMargin = time.Second

// exitLimit returns how long the exit may take by Caddy's grace_period; 0 where
// there is none.
func (a *App) exitLimit() time.Duration { return limitOf(a.grace) }

func limitOf(grace time.Duration) time.Duration {
	if grace <= 0 {
		return 0
	}
	return max(grace-graceMargin, grace/2)
}

// add adds a drainer. One that is superseded stays as long as it has clients.
func (d *drainers) add(dr *drainer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dr.superseded.Load() && dr.Len() == 0 {
		delete(d.set, dr)
		return
	}
	d.set[dr] = struct{}{}
	if !d.began.IsZero() {
		dr.Exit(d.deadlineLocked(dr))
	} else if dr.superseded.Load() && !d.watching {
		d.watching = true
		go d.watch(runningHTTP(nil))
	}
}

// haveSuccessors reports whether the clients of a handler can go on at another,
// of a configuration that has taken over. Of handlers that resemble one another
// none is known to be gone as long as there are as many as before.
func (d *drainers) haveSuccessors(dr *drainer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, after := 0, 0
	for other := range d.set {
		switch {
		case other.succeeds(dr):
			after++
		case other.app == dr.app && other.resembles(dr):
			before++
		}
	}
	return after > 0 && after >= before
}

// exit drains everything, because the process exits. No deadline is later than
// limit, where that is not 0. Only the first call has an effect.
func (d *drainers) exit(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.began.IsZero() {
		return
	}
	d.began, d.limit = time.Now(), limit
	for dr := range d.set {
		dr.Exit(d.deadlineLocked(dr))
	}
	process.limiters.Range(func(_, v any) bool {
		v.(pooledLimiter).Drain()
		return true
	})
}

// deadline returns when the clients of a drainer have to be gone; it reports
// false where the process does not exit.
func (d *drainers) deadline(dr *drainer) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deadlineLocked(dr), !d.began.IsZero()
}

// deadlineLocked is deadline; d.mu must be held.
func (d *drainers) deadlineLocked(dr *drainer) time.Time {
	if d.limit > 0 && d.limit < dr.deadline {
		return d.began.Add(d.limit)
	}
	return d.began.Add(dr.deadline)
}

// exitPoll is how often it is looked whether the process exits, while there
// are superseded configurations with clients.
const exitPoll = 200 * time.Millisecond

// watch begins the exit where the running configuration has no llm_stream to
// do so. It ends with the exit, or with the last client of a superseded
// configuration. It is given the HTTP app of the running one.
func (d *drainers) watch(app *caddyhttp.App) {
	ticker := time.NewTicker(exitPoll)
	defer ticker.Stop()
	for range ticker.C {
		app = runningHTTP(app)
		if caddy.Exiting() {
			break
		}
		if !d.sweep() {
			return
		}
	}
	if app == nil {
		d.exit(0)
		return
	}
	time.Sleep(time.Duration(app.ShutdownDelay)) // as Caddy does
	d.exit(limitOf(time.Duration(app.GracePeriod)))
}

// sweep forgets what is superseded and has no clients. It reports whether
// there is any superseded one left.
func (d *drainers) sweep() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watching = false
	for dr := range d.set {
		switch {
		case !dr.superseded.Load():
		case dr.Len() == 0:
			delete(d.set, dr)
		default:
			d.watching = true
		}
	}
	return d.watching
}

// runningHTTP returns the HTTP app of the running configuration, nil where it
// has none, or the one given where Caddy has begun to stop it.
func runningHTTP(last *caddyhttp.App) *caddyhttp.App {
	ctx := caddy.ActiveContext()
	if caddy.Exiting() {
		return last
	}
	app, err := ctx.AppIfConfigured("http")
	if err != nil {
		return nil
	}
	http, _ := app.(*caddyhttp.App)
	return http
}

// await waits until the last client has left, or was cut off. Caddy waits for
// those of superseded configurations only as long as their grace_period.
func (d *drainers) await() {
	d.exit(0)
	const poll = 10 * time.Millisecond
	for d.remain(time.Now()) {
		time.Sleep(poll)
	}
}

// members returns how many clients and producers a drain would end.
func (d *drainers) members() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for dr := range d.set {
		n += dr.Len()
	}
	return n
}

// remain reports whether there are clients, or producers, that need not be gone
// yet.
func (d *drainers) remain(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dr := range d.set {
		if dr.Len() > 0 && now.Before(d.deadlineLocked(dr).Add(2*drain.CutAfter)) {
			return true
		}
	}
	return false
}
