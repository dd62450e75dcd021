package llmstream

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metricSet is the metrics of this process. It outlives configurations: each
// registers it in its own registry, so that counts go on over a reload. There
// are two, one with a label for the model.
type metricSet struct {
	*clientMetrics

	streams       *prometheus.CounterVec // format, outcome
	firstToken    *prometheus.HistogramVec
	duration      *prometheus.HistogramVec
	outputs       *outputMetrics
	tokens        *prometheus.CounterVec // direction
	upstreamBytes *prometheus.CounterVec

	withModel bool
}

// clientMetrics are those that never have a label for the model: both sets
// have the same ones.
type clientMetrics struct {
	activeStreams prometheus.Gauge
	activeClients prometheus.Gauge
	queued        prometheus.GaugeFunc
	rejected      *prometheus.CounterVec // reason
	clientBytes   prometheus.Counter
	slowClients   *prometheus.CounterVec // action
	resumes       *prometheus.CounterVec // result
	reconnects    *prometheus.CounterVec // reason
}

// The buckets, in seconds. The first token of a reasoning model takes minutes.
var (
	firstTokenBuckets = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300}
	durationBuckets   = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

var (
	clientsMetrics = sync.OnceValue(newClientMetrics)
	plainMetrics   = sync.OnceValue(func() *metricSet { return newMetricSet(false) })
	modelMetrics   = sync.OnceValue(func() *metricSet { return newMetricSet(true) })
)

// opts names a metric.
func opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "caddy", Subsystem: "llm_stream", Name: name, Help: help}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
}

func histogram(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
	o := opts(name, help)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, Buckets: buckets,
	}, labels)
}

func newClientMetrics() *clientMetrics {
	m := &clientMetrics{
		activeStreams: prometheus.NewGauge(prometheus.GaugeOpts(opts("active_streams", "Generations that hold an upstream call."))),
		activeClients: prometheus.NewGauge(prometheus.GaugeOpts(opts("active_clients", "Open client requests."))),
		queued: prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("queued", "Requests that wait for a place.")),
			func() float64 { return float64(queuedRequests()) }),
		rejected:    counter("rejected_total", "Requests that were turned away, by reason.", "reason"),
		clientBytes: prometheus.NewCounter(prometheus.CounterOpts(opts("client_bytes_total", "Bytes of bodies sent to clients."))),
		slowClients: counter("slow_clients_total", "What was done about slow clients, by action.", "action"),
		resumes:     counter("resumes_total", "Requests that resume or follow a response, by result.", "result"),
		reconnects:  counter("reconnects_sent_total", "Clients told to reconnect, by reason.", "reason"),
	}
	// each from 0, so that the first one of its kind is seen to come
	for vec, values := range map[*prometheus.CounterVec][]string{
		m.rejected:    {"too_many_streams", "queue_full", "queue_timeout", "key_limit", "too_many_clients", "draining"},
		m.slowClients: {"coalesced", "dropped", "disconnected", "write_timeout"},
		m.resumes:     {"resumed", "ended", "unknown", "expired", "bad_cursor"},
		m.reconnects:  {"reload", "exit", "slow_client"},
	} {
		for _, value := range values {
			vec.WithLabelValues(value)
		}
	}
	return m
}

// newMetricSet makes the metrics of responses, with a label for the model
// where that is asked for.
func newMetricSet(withModel bool) *metricSet {
	var model []string
	if withModel {
		model = []string{"model"}
	}
	return &metricSet{
		clientMetrics: clientsMetrics(),
		withModel:     withModel,
		streams:       counter("streams_total", "Responses that have ended, by wire format and outcome.", append([]string{"format", "outcome"}, model...)...),
		firstToken:    histogram("first_token_seconds", "Time from admission to the model's first output.", firstTokenBuckets, model),
		duration:      histogram("duration_seconds", "Time from admission to the end of a response.", durationBuckets, model),
		outputs:       newOutputMetrics(model),
		tokens:        counter("tokens_total", "Tokens as providers counted them, by direction.", append([]string{"direction"}, model...)...),
		upstreamBytes: counter("upstream_bytes_total", "Bytes of upstream bodies.", model...),
	}
}

func (m *metricSet) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.activeStreams, m.activeClients, m.queued, m.streams, m.rejected, m.firstToken, m.duration,
		m.outputs, m.tokens, m.upstreamBytes, m.clientBytes, m.slowClients, m.resumes, m.reconnects,
	}
}

// register puts the metrics into a registry, where they may be already.
func (m *metricSet) register(registry prometheus.Registerer) error {
	for _, collector := range m.collectors() {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(collector); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// labels returns label values, with the model's where there is one.
func (m *metricSet) labels(model string, values ...string) []string {
	if m.withModel {
		return append(values, model)
	}
	return values
}

// queuedRequests returns how many requests wait for a place, at all limits
// together.
func queuedRequests() int {
	n := 0
	limits.Range(func(_, v any) bool {
		_, queued := v.(pooledLimiter).Stats()
		n += queued
		return true
	})
	return n
}
