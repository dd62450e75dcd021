package timeouts

// StopTimer stops the timer of w and reports whether it was set.
func (w *Watch) StopTimer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timer != nil && w.timer.Stop()
}
