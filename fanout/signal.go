package fanout

// signal wakes every goroutine that waits for it, once. The zero value is ready.
// It is guarded by the lock of what it belongs to, and costs nothing while none
// waits.
type signal struct {
	c chan struct{} // nil while none waits
}

// wait returns a channel that is closed by the next wake.
func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// closed is a channel that is always ready.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
