package observe

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreMetrics are those of a store that replicas share. A process has them only
// where it has such a store; otherwise they are like Metrics.
type StoreMetrics struct {
	calls      *prometheus.HistogramVec // call
	errors     *prometheus.CounterVec   // call
	events     prometheus.Counter
	bytes      prometheus.Histogram
	lag        prometheus.Histogram
	local      prometheus.Gauge
	incomplete prometheus.Counter
}

// The buckets, in seconds and bytes. A batch has at most some hundred kilobytes,
// mostly less than one.
var (
	callBuckets  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	lagBuckets   = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10}
	batchBuckets = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10}
)

// NewStoreMetrics returns the metrics of a process.
func NewStoreMetrics() *StoreMetrics {
	one := func(name, help string, buckets []float64) prometheus.Histogram {
		o := opts(name, help)
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, Buckets: buckets,
		})
	}
	return &StoreMetrics{
		calls:      histogram("store_call_seconds", "How long calls of the store took, failed ones included.", callBuckets, []string{"call"}),
		errors:     counter("store_errors_total", "Calls of the store that have failed.", "call"),
		events:     prometheus.NewCounter(prometheus.CounterOpts(opts("store_events_total", "Events written to the store."))),
		bytes:      one("store_batch_bytes", "Size of batches written to the store.", batchBuckets),
		lag:        one("store_lag_seconds", "Time from the sending of a batch by another replica to its arrival, by the two clocks.", lagBuckets),
		local:      prometheus.NewGauge(prometheus.GaugeOpts(opts("store_local_only", "Responses that the store does not take at the moment."))),
		incomplete: prometheus.NewCounter(prometheus.CounterOpts(opts("store_incomplete_total", "Responses whose copy will never be complete."))),
	}
}

// Register puts the metrics into a registry, where they may be already.
func (m *StoreMetrics) Register(registry prometheus.Registerer) error {
	for _, collector := range []prometheus.Collector{
		m.calls, m.errors, m.events, m.bytes, m.lag, m.local, m.incomplete,
	} {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(collector); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// Call counts a call that took so long; err is nil where the store has answered.
func (m *StoreMetrics) Call(name string, took time.Duration, err error) {
	m.calls.WithLabelValues(name).Observe(took.Seconds())
	failed := m.errors.WithLabelValues(name) // from 0, so that the first one is seen to come
	if err != nil {
		failed.Inc()
	}
}

// Batch counts a batch that was written.
func (m *StoreMetrics) Batch(events, bytes int) {
	m.events.Add(float64(events))
	m.bytes.Observe(float64(bytes))
}

// Lag counts how late a batch of another replica has come.
func (m *StoreMetrics) Lag(d time.Duration) { m.lag.Observe(max(d, 0).Seconds()) }

// Local counts that so many more responses are not in the store.
func (m *StoreMetrics) Local(delta int) { m.local.Add(float64(delta)) }

// Incomplete counts a response whose copy will never be complete.
func (m *StoreMetrics) Incomplete() { m.incomplete.Inc() }
