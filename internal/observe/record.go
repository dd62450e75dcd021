package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// Record is what operators learn of one response. Its producer writes it;
// it may be read at any time.
type Record struct {
	ID      string
	Dialect string
	Channel string
	Started time.Time // admission

	board   *Board
	metrics *Metrics
	cancel  func(cause error)

	first         atomic.Int64 // nanoseconds from admission to the first output; 0: none yet
	last          atomic.Int64 // likewise, of the last output
	deltas        atomic.Int64 // outputs of the model
	events        atomic.Int64 // those of them in the log
	upstreamBytes atomic.Int64
	clientBytes   atomic.Int64 // to the client that asked for it
	requested     atomic.Pointer[string]
	local         atomic.Bool // other replicas did not have it, at times

	counts outputCounter // belongs to the producer

	mu       sync.Mutex
	identity Identity
	outcome  event.Outcome
	duration time.Duration
	finish   event.FinishReason
	usage    *event.TokenUsage
}

// Identity is what the backend says of itself. What is not known is empty.
type Identity struct {
	Format     string // the wire format
	Model      string
	ProviderID string // the provider's own id of the response
}

// Begin begins the record of a response that was admitted and runs from now on.
// Its owner must Leave. cancel ends the upstream call.
func (b *Board) Begin(m *Metrics, id, dialect, channel string, cancel func(cause error)) *Record {
	rec := &Record{ID: id, Dialect: dialect, Channel: channel, Started: time.Now(), board: b, metrics: m, cancel: cancel}
	rec.counts.metrics = m
	m.activeStreams.Inc()
	b.add(rec)
	return rec
}

// Leave says that the response runs no more.
func (rec *Record) Leave() {
	rec.metrics.activeStreams.Dec()
	rec.board.remove(rec)
}

// Identify takes what is known of the backend. Some name the model only in
// their last event, so it may be called again.
func (rec *Record) Identify(id Identity) {
	rec.mu.Lock()
	rec.identity = id
	rec.mu.Unlock()
	if id.Model != "" {
		rec.counts.name(id.Model)
	}
}

// SetUsage takes the token counts that are known while the response runs; nil
// where there are none.
func (rec *Record) SetUsage(usage *event.TokenUsage) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.outcome == "" && usage != nil {
		rec.usage = usage
	}
}

// Usage returns the token counts so far, nil where there are none.
func (rec *Record) Usage() *event.TokenUsage {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.usage
}

// Requested takes the model that the request names.
func (rec *Record) Requested(model string) { rec.requested.Store(&model) }

// WasLocal takes that other replicas do not have the response, or not all of it.
func (rec *Record) WasLocal() { rec.local.Store(true) }

// Received counts bytes of the upstream's body.
func (rec *Record) Received(n int) { rec.upstreamBytes.Add(int64(n)) }

// Logged counts events of the log.
func (rec *Record) Logged(n int) { rec.events.Add(int64(n)) }

// Sent takes the bytes of the body that the client which asked has been sent.
func (rec *Record) Sent(n int64) { rec.clientBytes.Store(n) }

// Output counts n outputs of the model that came together, at a time since
// admission.
func (rec *Record) Output(n int, at time.Duration) {
	if n == 0 {
		return
	}
	last := time.Duration(rec.last.Load())
	rec.last.Store(int64(at))
	rec.deltas.Add(int64(n))
	if rec.first.Load() == 0 {
		rec.first.Store(int64(max(at, 1)))
		rec.counts.first(n, at)
		return
	}
	rec.counts.more(n, at-last)
}

// End says how the response has ended. Only the first call has an effect; it
// returns true. result is nil where the response has failed, usage where the
// provider has sent none.
func (rec *Record) End(outcome event.Outcome, result *event.Result, usage *event.TokenUsage) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.outcome != "" {
		return false
	}
	rec.outcome, rec.duration = outcome, time.Since(rec.Started)
	if usage != nil {
		rec.usage = usage
	}
	if result != nil {
		rec.finish = result.Finish
	}
	rec.counts.name(rec.identity.Model) // it will not be known any better
	m := rec.metrics
	label := m.modelLabel(rec.identity.Model)
	m.streams.WithLabelValues(m.labels(label, rec.formatLocked(), string(outcome))...).Inc()
	m.duration.WithLabelValues(m.labels(label)...).Observe(rec.duration.Seconds())
	m.upstreamBytes.WithLabelValues(m.labels(label)...).Add(float64(rec.upstreamBytes.Load()))
	for _, count := range directions(rec.usage) {
		m.tokens.WithLabelValues(m.labels(label, count.direction)...).Add(float64(min(count.n, mostTokens)))
	}
	return true
}

// formatLocked is the wire format as a label. rec.mu must be held.
func (rec *Record) formatLocked() string {
	if rec.identity.Format == "" {
		return "unknown"
	}
	return rec.identity.Format
}

// OutcomeOf returns the outcome that a terminal event stands for.
func OutcomeOf(terminal *event.Event) event.Outcome {
	switch {
	case terminal.Kind == event.Done && terminal.Result.Finish == event.FinishCancelled:
		return event.OutcomeCancelled
	case terminal.Kind == event.Done:
		return event.OutcomeDone
	case terminal.Err.Code == event.CodeDraining:
		return event.OutcomeDrained
	case terminal.Err.Code == event.CodeRequestTimeout:
		return event.OutcomeClientGone // it has not sent its part
	default:
		return event.Outcome(terminal.Err.Code)
	}
}

// Log writes a line where the response has ended otherwise than well.
func (rec *Record) Log(logger *zap.Logger) {
	level := zapcore.WarnLevel
	switch rec.Snapshot().Outcome { //nolint:exhaustive // every other one is a warning
	case event.OutcomeDone, event.OutcomeCancelled:
		level = zapcore.DebugLevel
	case event.OutcomeClientGone, event.OutcomeDrained:
		level = zapcore.InfoLevel
	}
	if c := logger.Check(level, "response ended"); c != nil {
		c.Write(zap.Object("llm_stream", rec))
	}
}

// MarshalLogObject implements zapcore.ObjectMarshaler: the object llm_stream of
// the access log of the client that asked for the response.
func (rec *Record) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	return rec.marshal(enc, rec.clientBytes.Load())
}

func (rec *Record) marshal(enc zapcore.ObjectEncoder, clientBytes int64) error {
	s := rec.Snapshot()
	enc.AddString("response_id", rec.ID)
	enc.AddString("format", s.Format)
	enc.AddString("model", s.Model)
	enc.AddString("outcome", string(s.Outcome))
	if s.FirstToken > 0 {
		enc.AddFloat64("first_token_ms", Milliseconds(s.FirstToken))
	}
	enc.AddFloat64("duration_ms", Milliseconds(s.Duration))
	enc.AddInt64("deltas", rec.deltas.Load())
	if s.Usage != nil {
		for _, count := range directions(s.Usage) {
			enc.AddInt64(count.direction+"_tokens", count.n)
		}
		if t := rec.generating().Seconds(); t > 0 && s.Usage.Output > 0 {
			enc.AddFloat64("tokens_per_second", float64(s.Usage.Output)/t)
		}
	}
	if rec.local.Load() {
		enc.AddBool("local_only", true)
	}
	enc.AddInt64("upstream_bytes", rec.upstreamBytes.Load())
	enc.AddInt64("client_bytes", clientBytes)
	return nil
}

// Snapshot is what is known of a response at one moment.
type Snapshot struct {
	Identity
	Outcome    event.Outcome // empty while it runs
	Finish     event.FinishReason
	Usage      *event.TokenUsage // nil where there is none
	FirstToken time.Duration     // from admission; 0 before
	Duration   time.Duration     // so far, where it runs
}

// Snapshot returns what is known at this moment.
func (rec *Record) Snapshot() Snapshot {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	s := Snapshot{
		Identity: rec.identity, Outcome: rec.outcome, Finish: rec.finish, Usage: rec.usage,
		FirstToken: time.Duration(rec.first.Load()), Duration: rec.duration,
	}
	if s.Outcome == "" {
		s.Duration = time.Since(rec.Started)
	}
	return s
}

// Model returns the model as the provider names it, empty while unknown.
func (rec *Record) Model() string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.identity.Model
}

// generating returns how long there was output.
func (rec *Record) generating() time.Duration {
	return time.Duration(rec.last.Load() - rec.first.Load())
}

// Milliseconds is a duration as logs have it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Interface guards
var _ zapcore.ObjectMarshaler = (*Record)(nil)
