package observe

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Metrics is the metrics of a process. It outlives configurations: each
// registers it in a registry of its own, so that counts go on over a reload.
// There are two, one of them with a label for the model; both share what never
// has that label.
type Metrics struct {
	*clientMetrics

	streams       *prometheus.CounterVec // format, outcome
	firstToken    *prometheus.HistogramVec
	duration      *prometheus.HistogramVec
	outputs       *outputMetrics
	tokens        *prometheus.CounterVec // direction
	upstreamBytes *prometheus.CounterVec

	models *modelLabels // nil without the label
}

// clientMetrics are those that never have a label for the model.
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

// NewMetrics returns the metrics of a process: without and with a label for the
// model. queued returns how many requests wait for a place.
func NewMetrics(queued func() int) (plain, withModel *Metrics) {
	clients := newClientMetrics(queued)
	return newMetrics(clients, nil), newMetrics(clients, &modelLabels{seen: make(map[string]struct{})})
}

// ClientIn and ClientOut count the open client requests.
func (m *clientMetrics) ClientIn() { m.activeClients.Inc() }

// ClientOut is the opposite of ClientIn.
func (m *clientMetrics) ClientOut() { m.activeClients.Dec() }

// Rejected counts a request that was turned away.
func (m *clientMetrics) Rejected(code event.Code) { m.rejected.WithLabelValues(string(code)).Inc() }

// SentToClient counts bytes of bodies.
func (m *clientMetrics) SentToClient(n int) { m.clientBytes.Add(float64(n)) }

// SlowClient counts what was done about a slow client.
func (m *clientMetrics) SlowClient(action event.SlowAction) {
	m.slowClients.WithLabelValues(string(action)).Inc()
}

// Resume counts a request that resumes or follows a response.
func (m *clientMetrics) Resume(result event.ResumeResult) {
	m.resumes.WithLabelValues(string(result)).Inc()
}

// Reconnect counts a client that was told to reconnect.
func (m *clientMetrics) Reconnect(reason event.Reason) {
	m.reconnects.WithLabelValues(string(reason)).Inc()
}

// The buckets, in seconds. The first token of a reasoning model takes minutes.
var (
	firstTokenBuckets = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300}
	durationBuckets   = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
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

func newClientMetrics(queued func() int) *clientMetrics {
	m := &clientMetrics{
		activeStreams: prometheus.NewGauge(prometheus.GaugeOpts(opts("active_streams", "Generations that hold an upstream call."))),
		activeClients: prometheus.NewGauge(prometheus.GaugeOpts(opts("active_clients", "Open client requests."))),
		queued: prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("queued", "Requests that wait for a place.")),
			func() float64 { return float64(queued()) }),
		rejected:    counter("rejected_total", "Requests that were turned away, by reason.", "reason"),
		clientBytes: prometheus.NewCounter(prometheus.CounterOpts(opts("client_bytes_total", "Bytes of bodies sent to clients."))),
		slowClients: counter("slow_clients_total", "What was done about slow clients, by action.", "action"),
		resumes:     counter("resumes_total", "Requests that resume or follow a response, by result.", "result"),
		reconnects:  counter("reconnects_sent_total", "Clients told to reconnect, by reason.", "reason"),
	}
	// each from 0, so that the first one of its kind is seen to come
	start(m.rejected, event.CodeTooManyStreams, event.CodeQueueFull, event.CodeQueueTimeout, event.CodeKeyLimit,
		event.CodeTooManyClients, event.CodeDraining, event.CodeStoreUnavailable)
	start(m.slowClients, event.SlowCoalesced, event.SlowDropped, event.SlowDisconnected, event.SlowWriteTimeout)
	start(m.resumes, event.ResumeResumed, event.ResumeEnded, event.ResumeUnknown, event.ResumeExpired, event.ResumeBadCursor)
	start(m.reconnects, event.ReasonReload, event.ReasonExit, event.ReasonSlowClient)
	return m
}

// start makes the counters of some values of the one label begin at 0.
func start[V ~string](vec *prometheus.CounterVec, values ...V) {
	for _, value := range values {
		vec.WithLabelValues(string(value))
	}
}

// newMetrics makes the metrics of responses.
func newMetrics(clients *clientMetrics, models *modelLabels) *Metrics {
	var model []string
	if models != nil {
		model = []string{"model"}
	}
	return &Metrics{
		clientMetrics: clients,
		models:        models,
		streams:       counter("streams_total", "Responses that have ended, by wire format and outcome.", append([]string{"format", "outcome"}, model...)...),
		firstToken:    histogram("first_token_seconds", "Time from admission to the model's first output.", firstTokenBuckets, model),
		duration:      histogram("duration_seconds", "Time from admission to the end of a response.", durationBuckets, model),
		outputs:       newOutputMetrics(model),
		tokens:        counter("tokens_total", "Tokens as providers counted them, by direction.", append([]string{"direction"}, model...)...),
		upstreamBytes: counter("upstream_bytes_total", "Bytes of upstream bodies.", model...),
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.activeStreams, m.activeClients, m.queued, m.streams, m.rejected, m.firstToken, m.duration,
		m.outputs, m.tokens, m.upstreamBytes, m.clientBytes, m.slowClients, m.resumes, m.reconnects,
	}
}

// Register puts the metrics into a registry, where they may be already.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	for _, collector := range m.collectors() {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(collector); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// labels returns label values, with the model's where there is one.
func (m *Metrics) labels(model string, values ...string) []string {
	if m.models == nil {
		return values
	}
	return append(values, model)
}

// modelLabel returns the value of the label for a model, empty where there is no
// such label.
func (m *Metrics) modelLabel(model string) string {
	if m.models == nil {
		return ""
	}
	return m.models.of(model)
}

// maxModels is how many models have a label of their own. The backend decides
// how many there are.
const maxModels = 1000

// otherModels is the label of all further models.
const otherModels = "other"

// modelLabels are the models that have a label of their own: the first ones.
type modelLabels struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

func (l *modelLabels) of(model string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.seen[model]; known {
		return model
	}
	if len(l.seen) >= maxModels {
		return otherModels
	}
	l.seen[model] = struct{}{}
	return model
}
