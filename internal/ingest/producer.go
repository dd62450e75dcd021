package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llmstream/caddy-llmstream/internal/compress"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// Log is where the events of a response go: a *fanout.Stream or a
// *fanout.Response.
type Log interface {
	// ID returns the id of the response.
	ID() string
	// Append adds output events; their texts are copied.
	Append(events []event.Event) error
	// End adds the terminal event. Only the first call has an effect.
	End(terminal *event.Event) bool
}

// Config is what a Producer is made with.
type Config struct {
	Path     string // of the request as the client sent it: names the backend's API
	Dialect  string // what the route emits
	MaxEvent int    // longest single event of the upstream, in bytes
	// Emits reports whether output of a kind goes into the log.
	Emits func(event.Kind) bool

	Log    Log
	Out    Outlet
	Watch  *timeouts.Watch
	Record *observe.Record
	Logger *zap.Logger

	Ctx    context.Context // of the upstream call
	Cancel context.CancelCauseFunc

	// Header is what the handlers before us have set for the client.
	Header http.Header
	// Status returns the HTTP status that an error of the next handler stands
	// for, 0 where it stands for none.
	Status func(error) int
	// Choices returns how many choices the request asks for, 0 where that is not
	// known, as where it is nil.
	Choices func() int
	// Late reports whether the request body has not come in time; nil where it
	// was there before.
	Late func() bool
	// Identified is told what becomes known of the backend; nil where that is
	// of no interest.
	Identified func(observe.Identity)
	// Ended is told the terminal event, before the log has it, where the
	// outcome of the response is that of its log; nil where it depends on the
	// client.
	Ended func(terminal *event.Event)
}

// Producer is the http.ResponseWriter of the next handler. It belongs to one
// goroutine.
type Producer struct {
	Config

	asked atomic.Bool // the request asks for a stream

	header       http.Header // what the next handler sees and sets
	phase        phase
	status       int               // of the upstream's response
	upstream     http.Header       // likewise, while it is not passed on
	decompressor *compress.Decoder // nil where the body is not compressed
	broken       bool              // the body cannot be decompressed
	body         http.ResponseWriter
	reader       *provider.Reader
	identity     observe.Identity
	emitted      bool         // there are events in the log
	late         bool         // the client had left before the header
	terminal     *event.Event // that the response has ended with
	refusal      []byte       // the body of a refused response
	err          error        // of the client's connection
	linger       *time.Timer  // ends an upstream that stays open after its end
}

// phase is how far a Producer is with its response.
type phase uint8

const (
	waiting   phase = iota // for the header
	decoding               // a token stream, or what may become one
	mirroring              // it passes as it is, and the decoder looks on
	passing                // it passes as it is
	refused                // it is no stream, but a heartbeat has committed one
	withdrawn              // the call was cancelled before its header: what comes does not count
	finished               // the terminal event is in the log
)

// lingerTime is how long an upstream may take to close the body after its
// terminal event. One that does can be used again for the next request.
const lingerTime = 500 * time.Millisecond

// New returns a Producer for one response.
func New(c Config) *Producer {
	if c.Choices == nil {
		c.Choices = func() int { return 0 }
	}
	return &Producer{Config: c, header: c.Header}
}

// AwaitStream tells that the request asks for a stream: the model has to answer
// in time, and the client may be sent heartbeats.
func (p *Producer) AwaitStream() {
	p.asked.Store(true)
	p.Watch.Begin()
	if p.Dialect != emit.DialectPassthrough {
		p.Watch.EnableHeartbeat()
	}
}

// Header implements http.ResponseWriter.
func (p *Producer) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *Producer) WriteHeader(status int) {
	switch {
	case p.phase != waiting:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		p.Out.Inform(status, p.header)
	case p.cause() != nil:
		p.phase = withdrawn
	case !provider.IsCandidate(p.header.Get("Content-Type"), p.Path, status, p.asked.Load()) || !p.decompress():
		p.late = p.Ctx.Err() != nil
		p.pass(passing, status, p.header)
	case p.Dialect == emit.DialectPassthrough:
		p.newReader()
		unbuffered(p.header)
		p.pass(mirroring, status, p.header)
	default:
		p.newReader()
		p.Watch.Begin()
		p.Watch.EnableHeartbeat()
		p.phase, p.status, p.upstream = decoding, status, p.header
		p.header = make(http.Header) // for trailers, which a re-emitted stream does not have
		p.Out.Expect(status, p.upstream)
	}
}

// decompress prepares to decode a body that is compressed although we asked for
// it as it is. It reports false where that cannot be done.
func (p *Producer) decompress() bool {
	coding := p.header.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return true
	}
	if p.Dialect == emit.DialectPassthrough {
		return false
	}
	p.decompressor = compress.NewDecoder(coding, func(b []byte) { _, _ = p.take(b) })
	if p.decompressor == nil {
		return false
	}
	p.header.Del("Content-Encoding")
	p.header.Del("Content-Length")
	return true
}

func (p *Producer) newReader() {
	p.reader = provider.NewReader(provider.Options{
		Path:        p.Path,
		ContentType: p.header.Get("Content-Type"),
		MaxEvent:    p.MaxEvent,
		Choices:     p.Choices(),
	})
}

// Write implements http.ResponseWriter.
func (p *Producer) Write(b []byte) (int, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	if p.decompressor == nil {
		return p.take(b)
	}
	if _, err := p.decompressor.Write(b); err != nil {
		p.broken = true
		if p.phase == decoding {
			p.append([]event.Event{undecodable(err)}, 0)
		}
	}
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// take deals with a piece of the body.
func (p *Producer) take(b []byte) (int, error) {
	switch p.phase {
	case decoding:
		return p.decode(b)
	case mirroring:
		return p.mirror(b)
	case passing:
		return p.body.Write(b)
	case refused:
		p.refuse(b)
	case waiting, withdrawn, finished: // what a backend says after its last event
	}
	return len(b), nil
}

// FlushError is what an http.ResponseController calls. Frames are flushed when
// they are written.
func (p *Producer) FlushError() error {
	if p.phase != passing && p.phase != mirroring {
		return nil
	}
	err := http.NewResponseController(p.body).Flush()
	if p.err == nil && p.phase == mirroring {
		p.err = err
	}
	return err
}

// ReadFrom implements io.ReaderFrom, so that a response which only passes can
// still use sendfile.
func (p *Producer) ReadFrom(src io.Reader) (int64, error) {
	if p.phase == waiting {
		p.WriteHeader(http.StatusOK)
	}
	if rf, ok := p.body.(io.ReaderFrom); ok && p.phase == passing {
		return rf.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{p}, src)
}

// Hijacker is an Outlet whose connection a handler may take over before it has
// answered.
type Hijacker interface {
	Hijack() (net.Conn, *bufio.ReadWriter, http.ResponseWriter, error)
}

// Hijack implements http.Hijacker.
func (p *Producer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	out, ok := p.Out.(Hijacker)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, w, err := out.Hijack()
	if err == nil {
		p.phase, p.body = passing, w
	}
	return conn, rw, err
}

// Handler is the next handler.
type Handler interface {
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Run lets the next handler produce the response, and returns when it is
// complete.
func (p *Producer) Run(next Handler, r *http.Request) Call {
	defer p.release()
	return p.finish(p.call(next, r))
}

// call calls the next handler. A panic of its own goes on, but not the one with
// which a handler aborts the response.
func (p *Producer) call(next Handler, r *http.Request) (call Call) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		call.Aborted = true
	}()
	return Call{Err: next.ServeHTTP(p, r)}
}

// release gives up what a Producer may hold when it is left, on panic too.
func (p *Producer) release() {
	if p.linger != nil {
		p.linger.Stop()
	}
	if p.decompressor != nil {
		p.decompressor.Stop()
	}
	p.releaseEvents()
}

// Interface guards
var (
	_ http.ResponseWriter = (*Producer)(nil)
	_ http.Hijacker       = (*Producer)(nil)
	_ io.ReaderFrom       = (*Producer)(nil)
)
