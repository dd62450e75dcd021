package observe

import (
	"sync"
	"time"
)

// outputCounter counts the outputs of one response in the metrics of its model.
// Where these are told apart by model, what comes before the model is known is
// kept until then.
type outputCounter struct {
	metrics *Metrics

	mu      sync.Mutex
	named   bool
	target  *outputCounts // nil before the first output
	firstAt time.Duration // of the first output; 0 where there is none, or it was observed
	label   string
}

// name says which model the outputs are of. Only the first call counts.
func (c *outputCounter) name(model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named {
		return
	}
	c.named, c.label = true, c.metrics.modelLabel(model)
	if kept := c.target; kept != nil && c.metrics.models != nil {
		c.target = c.metrics.outputs.of(c.label)
		c.target.add(kept)
		c.observeFirstLocked()
	}
}

// first counts n outputs, the first of the response among them.
func (c *outputCounter) first(n int, at time.Duration) {
	c.mu.Lock()
	c.firstAt = max(at, 1)
	if c.named || c.metrics.models == nil {
		c.target = c.metrics.outputs.of(c.label)
		c.observeFirstLocked()
	} else {
		c.target = new(outputCounts)
	}
	c.mu.Unlock()
	c.count(n, n-1)
}

// more counts n outputs that came a gap after the last one.
func (c *outputCounter) more(n int, gap time.Duration) {
	counts := c.count(n, n-1)
	counts.gap(gap)
}

// count counts outputs, and gaps of no length between those that came together.
func (c *outputCounter) count(outputs, gaps int) *outputCounts {
	c.mu.Lock()
	counts := c.target
	c.mu.Unlock()
	counts.deltas.Add(uint64(outputs)) //nolint:gosec // G115: it is a count
	for range gaps {
		counts.gap(0)
	}
	return counts
}

// observeFirstLocked observes the time to the first output. c.mu must be held.
func (c *outputCounter) observeFirstLocked() {
	c.metrics.firstToken.WithLabelValues(c.metrics.labels(c.label)...).Observe(c.firstAt.Seconds())
}
