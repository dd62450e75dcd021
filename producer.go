package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// producer is the http.ResponseWriter that the next handler writes a response
// into. It finds out whether the response is a token stream. If so, it decodes
// it and appends what it says to the log; if not, everything goes through to
// the client as it came.
type producer struct {
	handler *Handler
	id      string // of the response
	path    string // of the request: names the backend's API
	dialect string
	log     eventLog
	out     outlet
	ctx     context.Context // of the upstream call
	cancel  context.CancelCauseFunc
	watch   *timeouts.Watch
	record  *record

	header   http.Header // what the next handler sees and sets
	phase    phase
	status   int                 // of the upstream's response
	held     http.Header         // likewise
	inflater *inflater           // nil where the body is not compressed
	broken   bool                // and can not be decoded
	body     http.ResponseWriter // where a response goes that passes through
	reader   *provider.Reader
	begun    bool         // there has been output
	heard    bool         // likewise, and be it output that is not emitted
	silent   int          // outputs of the last piece that are no events
	terminal *event.Event // that the response has ended with
	refusal  []byte       // the body of a refused response
	err      error        // of the client's connection
	linger   *time.Timer  // ends an upstream that stays open after its end
}

// eventLog is where the events of a response go to: a *fanout.Stream or a
// *fanout.Response.
type eventLog interface {
	ID() string
	Append(events []event.Event) error
	End(terminal *event.Event) bool
}

// phase is how far a producer is with its response.
type phase uint8

const (
	waiting   phase = iota // for the header
	reading                // a token stream, or what may become one
	mirroring              // like passing, and the decoder looks on
	passing                // something else: as it came
	refused                // something else, but a heartbeat has committed a stream
	stopped                // the upstream call was cancelled before its header: what comes is of no account
	finished               // the terminal event is in the log
)

// lingerTime is how long an upstream may take to close the body after its
// terminal event. One that does can be used again for the next request.
const lingerTime = 500 * time.Millisecond

// errLingered is the cause with which an upstream is cancelled that stays open
// after its terminal event.
var errLingered = errors.New("upstream stayed open after the end of the response")

// run lets the next handler produce the response and returns when it is
// complete.
func (p *producer) run(next caddyhttp.Handler, r *http.Request) (end outcome) {
	defer func() {
		if v := recover(); v != nil {
			if e, ok := v.(error); !ok || !errors.Is(e, http.ErrAbortHandler) {
				if p.inflater != nil {
					p.inflater.stop()
				}
				panic(v)
			}
			end.aborted = true
		}
		if p.linger != nil {
			p.linger.Stop()
		}
	}()
	return outcome{err: next.ServeHTTP(p, r)}
}

// Header implements http.ResponseWriter.
func (p *producer) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *producer) WriteHeader(status int) {
	switch {
	case p.phase != waiting:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		p.out.inform(status, p.header)
	case causeTerminal(p.ctx) != nil:
		p.phase = stopped
	case !provider.IsCandidate(p.header.Get("Content-Type"), p.path, status, false) || !p.readable():
		p.passOn(passing, status, p.header)
	case p.dialect == emit.DialectPassthrough:
		p.newReader()
		unbuffered(p.header)
		p.passOn(mirroring, status, p.header)
	default:
		p.newReader()
		p.awaitStream()
		p.phase = reading
		p.status, p.held = status, p.header
		p.header = make(http.Header) // for trailers, which a stream that is re-emitted does not have
		p.out.expect(status, p.held)
	}
}

// readable reports whether the body can be read, and prepares to decode one
// that is compressed although we asked for it as it is.
func (p *producer) readable() bool {
	coding := strings.ToLower(p.header.Get("Content-Encoding"))
	open := inflaters[coding]
	switch {
	case coding == "" || coding == "identity":
		return true
	case open == nil || p.dialect == emit.DialectPassthrough:
		return false
	}
	p.header.Del("Content-Encoding")
	p.header.Del("Content-Length")
	p.inflater = newInflater(open, func(b []byte) { _, _ = p.take(b) })
	return true
}

func (p *producer) newReader() {
	p.reader = provider.NewReader(provider.Options{
		Path:        p.path,
		ContentType: p.header.Get("Content-Type"),
		MaxEvent:    p.handler.maxEvent(),
	})
}

// model returns the model as the provider names it, empty while unknown.
func (p *producer) model() string {
	if p.reader == nil {
		return ""
	}
	return p.reader.Model()
}

// Write implements http.ResponseWriter.
func (p *producer) Write(b []byte) (int, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	if p.inflater == nil {
		return p.take(b)
	}
	if err := p.inflater.write(b); err != nil {
		p.broken = true
		if p.phase == reading {
			p.append([]event.Event{undecodable(err)})
		}
	}
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// take deals with a piece of the body.
func (p *producer) take(b []byte) (int, error) {
	switch p.phase {
	case mirroring:
		return p.mirror(b)
	case passing:
		return p.body.Write(b)
	case reading:
		return p.read(b)
	case refused:
		p.refusal = append(p.refusal, b[:min(len(b), maxRefusal-len(p.refusal))]...)
	case waiting, stopped, finished: // what a backend says after its last event
	}
	return len(b), nil
}

// listen tells who counts what is known with the first output.
func (p *producer) listen() {
	if p.heard {
		return
	}
	p.heard = true
	p.record.identify(p.reader.Format(), p.reader.Model(), p.reader.ResponseID())
	if response, ok := p.log.(*fanout.Response); ok {
		response.Describe(nil, p.reader.Format(), p.reader.Model())
	}
}

// read decodes a piece of the body.
func (p *producer) read(b []byte) (int, error) {
	p.record.upstreamBytes.Add(int64(len(b)))
	events := p.reader.Feed(b)
	p.silent = p.reader.Silent()
	if p.reader.State() == provider.Opaque {
		p.err = p.passHeld()
	} else {
		p.append(events)
	}
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// append puts the events that the route emits into the log and lets the client
// have them.
func (p *producer) append(events []event.Event) {
	outputs := events[:0] // in place: the terminal event, if there is one, is the last
	var terminal *event.Event
	heard := p.silent
	p.silent = 0
	for i := range events {
		ev := &events[i]
		if ev.Kind.IsOutput() {
			heard++
		}
		switch {
		case ev.Kind.IsTerminal():
			terminal = ev
		case p.handler.emits(p.dialect, ev.Kind):
			outputs = append(outputs, *ev)
		}
	}
	if heard > 0 {
		p.listen()
	}
	if len(outputs) > 0 {
		p.begun = true
		p.record.events.Add(int64(len(outputs)))
		if err := p.log.Append(outputs); err != nil {
			terminal = tooLarge
			p.cancel(err)
		}
	}
	if terminal != nil {
		p.end(terminal)
	}
	written := len(outputs) > 0 || terminal != nil
	p.release() // the log has copied them, and the client may take its time
	var at time.Duration
	switch {
	case written:
		at, p.err = p.out.deliver(p.watch)
	case heard > 0:
		at = p.watch.Output()
	}
	p.record.output(heard, at)
}

// release gives the memory of decoded events back.
func (p *producer) release() {
	if p.reader != nil {
		p.reader.Release()
	}
}

// end puts the terminal event into the log.
func (p *producer) end(terminal *event.Event) {
	ev := *terminal
	p.terminal = &ev
	p.log.End(&ev)
	p.phase = finished
	if ev.Kind == event.Failed {
		p.cancel(errLingered) // whatever it still says, nobody wants it
		return
	}
	p.linger = time.AfterFunc(lingerTime, func() { p.cancel(errLingered) })
}

// settle brings the response to its end after the next handler has returned: a
// stream that has no terminal event yet gets one. What it returns is how the
// response ends where it is no stream; like reverse_proxy, it is aborted where
// the client must not take the end for a good one.
func (p *producer) settle(end outcome) outcome {
	terminal := causeTerminal(p.ctx)
	if p.inflater != nil && p.inflater.close() != nil {
		p.broken = true // where it is decoded, it has no terminal event either
	}
	switch p.phase {
	case waiting, stopped:
		if terminal == nil && !p.out.seal() {
			end.header = p.header
			return end // for Caddy's error routes
		}
		if terminal == nil {
			terminal = p.failed(end)
		}
		p.append([]event.Event{*terminal})
	case passing, mirroring:
		p.endMirror(terminal, end)
		if errors.Is(context.Cause(p.ctx), errLingered) {
			end = outcome{} // the client has had all of it
		}
		end.aborted = end.aborted || p.broken || terminal != nil || p.truncated()
		if b, ok := p.body.(*borrowed); ok {
			b.finish()
		}
		return end
	case reading:
		if terminal == nil && p.ctx.Err() != nil {
			p.err = errClientGone // nobody is there to be told of an end
			return end
		}
		if terminal == nil && end.err != nil && !p.begun && !p.out.seal() {
			end.header = p.held
			return end // for Caddy's error routes
		}
		if terminal == nil && end.err != nil {
			terminal = p.failed(end)
		}
		p.close(terminal, !end.aborted && end.err == nil)
		if p.phase == passing {
			return end
		}
		if p.phase == refused {
			p.append([]event.Event{refusedTerminal(p.status, nil)})
		}
	case refused:
		p.append([]event.Event{refusedTerminal(p.status, p.refusal)})
	case finished:
	}
	return outcome{}
}

// failed returns the terminal event for an upstream call that has failed, and
// logs why: the client is told no more than the status.
func (p *producer) failed(end outcome) *event.Event {
	if end.err != nil {
		p.handler.logger.Warn("upstream call failed after the response had begun",
			zap.String("response_id", p.id), zap.Error(end.err))
	}
	return callFailed(end)
}

// close ends a stream that has no terminal event yet: with the one given, or
// with what the decoder makes of the end of the body, which is clean or not.
func (p *producer) close(terminal *event.Event, clean bool) {
	if terminal != nil && terminal.Kind == event.Failed &&
		terminal.Err.Code == event.CodeBetweenTokensTimeout && p.reader.Finished() {
		p.append(p.reader.Finish()) // only the provider's own end is missing
		return
	}
	if terminal != nil {
		p.append([]event.Event{*terminal})
		return
	}
	events := p.reader.Close(clean)
	if p.reader.State() == provider.Opaque {
		p.err = p.passHeld()
		return
	}
	p.append(events)
}

// Interface guards
var (
	_ http.ResponseWriter = (*producer)(nil)
	_ http.Hijacker       = (*producer)(nil)
	_ io.ReaderFrom       = (*producer)(nil)
)
