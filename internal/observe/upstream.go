package observe

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// UpstreamMetrics counts what became of calls of backends, where the transport
// watches them.
type UpstreamMetrics struct{ attempts *prometheus.CounterVec }

// NewUpstreamMetrics returns metrics that count from 0.
func NewUpstreamMetrics() *UpstreamMetrics {
	return &UpstreamMetrics{counter("upstream_attempts_total",
		"Calls of backends through the transport that have asked for a stream, by what came of them.", "result")}
}

// Register puts the metrics into a registry, where they may be already.
func (m *UpstreamMetrics) Register(registry prometheus.Registerer) error {
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(m.attempts); err != nil && !errors.As(err, &already) {
		return err
	}
	return nil
}

// Attempt counts one call: answered, or the code of its failure.
func (m *UpstreamMetrics) Attempt(result string) { m.attempts.WithLabelValues(result).Inc() }
