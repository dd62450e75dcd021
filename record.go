package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// record is what operators learn of one response: it counts while the response
// runs, and tells log, metrics and traces at the end. The producer writes it,
// everybody may read.
type record struct {
	id      string
	dialect string
	channel string
	started time.Time // admission
	metrics *metricSet
	cancel  func(cause error)

	first         atomic.Int64 // nanoseconds from admission to the first output; 0: none yet
	last          atomic.Int64 // likewise, of the last output
	deltas        atomic.Int64 // outputs of the model
	events        atomic.Int64 // those of them in the log
	upstreamBytes atomic.Int64
	clientBytes   atomic.Int64 // to the client who asked for it

	// of the model, known with the first output
	counts *outputCounts

	requested atomic.Pointer[string] // the model that the request names

	mu       sync.Mutex
	format   string
	model    string
	provider string // the response id that the provider gave
	outcome  outcomeName
	duration time.Duration
	finish   event.FinishReason
	usage    *event.TokenUsage
}

// outcomeName is how a response has ended, in logs and metrics.
type outcomeName string

// The outcomes. Those that are not here are the code of the error with which
// the response has ended.
const (
	outcomeDone       outcomeName = "done"
	outcomeCancelled  outcomeName = "cancelled"
	outcomeClientGone outcomeName = "client_gone"
	outcomeSlowClient outcomeName = "slow_client"
	outcomeDrained    outcomeName = "drained"
)

// outcomeOf returns the outcome that a terminal event stands for.
func outcomeOf(terminal *event.Event) outcomeName {
	switch {
	case terminal.Kind == event.Done && terminal.Result.Finish == event.FinishCancelled:
		return outcomeCancelled
	case terminal.Kind == event.Done:
		return outcomeDone
	case terminal.Err.Code == event.CodeDraining:
		return outcomeDrained
	default:
		return outcomeName(terminal.Err.Code)
	}
}

// running are the records of the responses under way, for the admin API.
var running = struct {
	sync.Mutex
	records map[*record]struct{}
}{records: make(map[*record]struct{})}

// newRecord begins the record of a response that was admitted.
func newRecord(metrics *metricSet, id, dialect, channel string, cancel func(error)) *record {
	rec := &record{id: id, dialect: dialect, channel: channel, started: time.Now(), metrics: metrics, cancel: cancel}
	metrics.activeStreams.Inc()
	running.Lock()
	defer running.Unlock()
	running.records[rec] = struct{}{}
	return rec
}

// identify says which metrics count the outputs, once format and model are
// known.
func (rec *record) identify(format, model, providerID string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.format, rec.model, rec.provider = format, model, providerID
	rec.counts = rec.metrics.outputs.of(model)
}

// output counts n outputs that came together, at a time since admission.
func (rec *record) output(n int, at time.Duration) {
	if n == 0 {
		return
	}
	last := time.Duration(rec.last.Load())
	rec.last.Store(int64(at))
	rec.deltas.Add(int64(n))
	rec.counts.deltas.Add(uint64(n)) //nolint:gosec // G115: n is a count
	if rec.first.Load() == 0 {
		rec.first.Store(int64(max(at, 1)))
		rec.metrics.firstToken.WithLabelValues(rec.metrics.labels(rec.modelName())...).Observe(at.Seconds())
	} else {
		rec.counts.gap(at - last)
	}
	for range n - 1 {
		rec.counts.gap(0)
	}
}

func (rec *record) modelName() string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.model
}

// leave takes the response off those under way.
func (rec *record) leave() {
	rec.metrics.activeStreams.Dec()
	running.Lock()
	defer running.Unlock()
	delete(running.records, rec)
}

// end says how the response has ended, once.
func (rec *record) end(outcome outcomeName, result *event.Result, usage *event.TokenUsage) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.outcome != "" {
		return false
	}
	rec.outcome, rec.duration, rec.usage = outcome, time.Since(rec.started), usage
	if result != nil {
		rec.finish = result.Finish
	}
	m := rec.metrics
	m.streams.WithLabelValues(m.labels(rec.model, rec.formatLabel(), string(outcome))...).Inc()
	m.duration.WithLabelValues(m.labels(rec.model)...).Observe(rec.duration.Seconds())
	m.upstreamBytes.WithLabelValues(m.labels(rec.model)...).Add(float64(rec.upstreamBytes.Load()))
	if usage != nil {
		m.tokens.WithLabelValues(m.labels(rec.model, "input")...).Add(float64(max(usage.Input, 0)))
		m.tokens.WithLabelValues(m.labels(rec.model, "output")...).Add(float64(max(usage.Output, 0)))
	}
	return true
}

// formatLabel is the wire format as a label.
func (rec *record) formatLabel() string {
	if rec.format == "" {
		return "unknown"
	}
	return rec.format
}

// log writes a line where the response has ended otherwise than well.
func (rec *record) log(logger *zap.Logger) {
	level := zapcore.WarnLevel
	rec.mu.Lock()
	outcome := rec.outcome
	rec.mu.Unlock()
	switch outcome { //nolint:exhaustive // every other one is a warning
	case outcomeDone, outcomeCancelled:
		level = zapcore.DebugLevel
	case outcomeClientGone, outcomeDrained:
		level = zapcore.InfoLevel
	}
	if c := logger.Check(level, "response ended"); c != nil {
		c.Write(zap.Object("llm_stream", rec))
	}
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (rec *record) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	enc.AddString("response_id", rec.id)
	enc.AddString("format", rec.format)
	enc.AddString("model", rec.model)
	enc.AddString("outcome", string(rec.outcome))
	if first := rec.first.Load(); first > 0 {
		enc.AddFloat64("first_token_ms", milliseconds(time.Duration(first)))
	}
	duration := rec.duration
	if rec.outcome == "" {
		duration = time.Since(rec.started)
	}
	enc.AddFloat64("duration_ms", milliseconds(duration))
	enc.AddInt64("deltas", rec.deltas.Load())
	if rec.usage != nil {
		enc.AddInt64("input_tokens", rec.usage.Input)
		enc.AddInt64("output_tokens", rec.usage.Output)
		if s := rec.generating(); s > 0 && rec.usage.Output > 0 {
			enc.AddFloat64("tokens_per_second", float64(rec.usage.Output)/s)
		}
	}
	enc.AddInt64("upstream_bytes", rec.upstreamBytes.Load())
	enc.AddInt64("client_bytes", rec.clientBytes.Load())
	return nil
}

// recordSnapshot is what is known of a response at one moment.
type recordSnapshot struct {
	format, model, provider string
	outcome                 outcomeName
	finish                  event.FinishReason
	usage                   *event.TokenUsage
	firstTokenMS            float64
}

func (rec *record) snapshot() recordSnapshot {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return recordSnapshot{
		rec.format, rec.model, rec.provider, rec.outcome, rec.finish, rec.usage,
		milliseconds(time.Duration(rec.first.Load())),
	}
}

// generating returns for how many seconds there was output.
func (rec *record) generating() float64 {
	return time.Duration(rec.last.Load() - rec.first.Load()).Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Interface guards
var _ zapcore.ObjectMarshaler = (*record)(nil)
