package loop

import "sync"

// queue holds the connections that have something to do, first come first
// served.
type queue struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	ready      sync.Cond
	idle       int // writers that wait and that nobody has called yet
	head, tail *Conn
	closed     bool
}

// push puts a connection at the end. It is in the queue once at most.
func (q *queue) push(c *Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
	if q.idle > 0 {
		q.idle--
		q.ready.Signal()
	}
}

// pop waits for a connection. It returns nil when the queue is closed.
func (q *queue) pop() *Conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == nil {
		if q.closed {
			return nil
		}
		q.idle++
		q.ready.Wait()
	}
	c := q.head
	q.head, c.next = c.next, nil
	return c
}

// close ends the writers. The queue is empty, and remains so.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}

// serve is one writer.
func (q *queue) serve() {
	w := newWriter()
	for {
		c := q.pop()
		if c == nil {
			return
		}
		c.turn(w)
		w.trim()
	}
}
