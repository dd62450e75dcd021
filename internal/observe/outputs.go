package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// outputMetrics counts the outputs of models and the gaps between them. It is on
// the path of every token, so it uses a few atomic additions where the counters
// and histograms of the client library take five times as long.
type outputMetrics struct {
	deltas *prometheus.Desc
	gaps   *prometheus.Desc

	mu      sync.Mutex
	byModel map[string]*outputCounts // by label value; one entry where there is no label
	labeled bool
}

// outputCounts are the counts of one model, or of all.
type outputCounts struct {
	deltas  atomic.Uint64
	gaps    [len(gapBounds) + 1]atomic.Uint64 // by bucket; the last one is beyond the bounds
	seconds atomic.Int64                      // sum of the gaps, in nanoseconds
}

// gapBounds are the upper bounds of the buckets of gaps: from the millisecond of
// a fast model to the pauses of one that thinks.
var gapBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
}

func newOutputMetrics(labels []string) *outputMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("caddy", "llm_stream", name), help, labels, nil)
	}
	return &outputMetrics{
		deltas:  desc("deltas_total", "Outputs of models."),
		gaps:    desc("between_tokens_seconds", "Time between two outputs of the model."),
		labeled: len(labels) > 0,
		byModel: map[string]*outputCounts{},
	}
}

// of returns the counts of a value of the label.
func (m *outputMetrics) of(label string) *outputCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := m.byModel[label]
	if counts == nil {
		counts = new(outputCounts)
		m.byModel[label] = counts
	}
	return counts
}

// add adds what was counted elsewhere.
func (c *outputCounts) add(other *outputCounts) {
	c.deltas.Add(other.deltas.Load())
	for i := range other.gaps {
		c.gaps[i].Add(other.gaps[i].Load())
	}
	c.seconds.Add(other.seconds.Load())
}

// gap counts a gap.
func (c *outputCounts) gap(d time.Duration) {
	i := 0
	for i < len(gapBounds) && d > gapBounds[i] {
		i++
	}
	c.gaps[i].Add(1)
	c.seconds.Add(int64(d))
}

// Describe implements prometheus.Collector.
func (m *outputMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- m.deltas
	descs <- m.gaps
}

// Collect implements prometheus.Collector.
func (m *outputMetrics) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for label, counts := range m.byModel {
		var labels []string
		if m.labeled {
			labels = []string{label}
		}
		metrics <- prometheus.MustNewConstMetric(m.deltas, prometheus.CounterValue, float64(counts.deltas.Load()), labels...)
		metrics <- counts.histogram(m.gaps, labels)
	}
}

func (c *outputCounts) histogram(desc *prometheus.Desc, labels []string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(gapBounds))
	n := uint64(0)
	for i, bound := range gapBounds {
		n += c.gaps[i].Load()
		buckets[bound.Seconds()] = n
	}
	n += c.gaps[len(gapBounds)].Load()
	return prometheus.MustNewConstHistogram(desc, n, time.Duration(c.seconds.Load()).Seconds(), buckets, labels...)
}

// Interface guards
var _ prometheus.Collector = (*outputMetrics)(nil)
