package loop

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
)

// Loop is a set of parked connections and the goroutines that serve them. Its
// methods are safe for concurrent use.
type Loop struct {
	queue      queue
	poller     *poller        // nil where there is none
	goroutines sync.WaitGroup // all that the loop has started

	mu sync.Mutex
	// The fields below are guarded by mu.
	conns    map[uint64]*Conn // by id
	lastID   uint64
	places   int           // of connections, and of those that Take is about to take
	closing  bool          // no more are taken
	dropping bool          // and those that are left are dropped
	empty    chan struct{} // closed when the last place is free; nil before Shutdown
	feeders  map[*http.Server]*feeder
}

// New returns a loop that runs until Shutdown. It has as many writers as Go
// code may use cores.
func New() *Loop {
	l := &Loop{
		conns:   make(map[uint64]*Conn),
		feeders: make(map[*http.Server]*feeder),
	}
	l.queue.ready.L = &l.queue.mu
	l.poller = newPoller()
	if l.poller != nil {
		l.goroutines.Go(func() { l.poller.watch(l.notify) })
	}
	for range runtime.GOMAXPROCS(0) {
		l.goroutines.Go(l.queue.serve)
	}
	return l
}

// Parked returns how many connections the loop holds.
func (l *Loop) Parked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Shutdown takes no more connections and waits until those that it has are
// over. When ctx is done it drops the rest. It returns when every goroutine of
// the loop has ended, with ctx's error where it dropped any. It is called once.
func (l *Loop) Shutdown(ctx context.Context) error {
	err := l.drain(ctx)
	l.mu.Lock()
	feeders := l.feeders
	l.feeders = nil
	l.mu.Unlock()
	for _, f := range feeders {
		_ = f.Close()
	}
	l.queue.close()
	if l.poller != nil {
		l.poller.close()
	}
	l.goroutines.Wait()
	return err
}

// drain waits until no connection is left, and drops those that are when ctx
// is done.
func (l *Loop) drain(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	l.empty = make(chan struct{})
	if l.places == 0 {
		close(l.empty)
	}
	l.mu.Unlock()
	select {
	case <-l.empty:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	l.dropping = true
	for _, c := range l.conns {
		c.Drop()
	}
	l.mu.Unlock()
	<-l.empty
	return ctx.Err()
}

// reserve keeps a place for a connection. It reports whether there is one.
func (l *Loop) reserve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.places++
	return true
}

// cancel gives back a reserved place.
func (l *Loop) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeLocked()
}

// freeLocked frees a place; mu must be held.
func (l *Loop) freeLocked() {
	if l.places--; l.places == 0 && l.closing {
		close(l.empty)
	}
}

// add connects c with its client and puts it into a reserved place. What the
// watch sees of it waits for mu.
func (l *Loop) add(c *Conn, conn, direct net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	c.id = l.lastID
	c.open(conn, direct)
	l.conns[c.id] = c
	if l.dropping {
		c.Drop()
	}
}

// remove forgets a connection that is over.
func (l *Loop) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c.id)
	l.freeLocked()
}

// notify passes on what the watch has seen.
func (l *Loop) notify(events []readiness) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if c := l.conns[e.id]; c != nil {
			c.signal(e.signals)
		}
	}
}

// handBack gives a connection to the server that it came from, for its next
// request. It reports whether the server takes it.
func (l *Loop) handBack(server *http.Server, conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.feeders == nil {
		return false
	}
	f := l.feeders[server]
	if f == nil {
		f = newFeeder()
		l.feeders[server] = f
		l.goroutines.Go(func() {
			_ = server.Serve(f) // it says that the server or the feeder was closed
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.feeders[server] == f {
				delete(l.feeders, server)
			}
		})
	}
	return f.give(conn)
}
