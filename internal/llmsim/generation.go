package llmsim

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"
)

// failure is the message of the errors that a fault makes.
const failure = "llmsim: the simulated model failed"

// The messages of Ollama's errors where the process that runs the model dies,
// before the first token and after it.
const (
	ollamaCrashEarly = "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, " +
		"check ollama server logs for details"
	ollamaCrash = "an error was encountered while running the model: unexpected EOF"
)

// retryAfter is the Retry-After of FaultStatus, in seconds.
const retryAfter = "1"

// generation runs one response in the goroutine of its request. Its methods
// return an error when the client has left, and only then.
type generation struct {
	api     api
	opts    Options
	res     *response
	out     writer
	w       http.ResponseWriter
	flusher *http.ResponseController
	pace    *pacer
}

func (g *generation) run(ctx context.Context) error {
	if g.opts.Fault == FaultStatus {
		status := g.opts.Status
		if status == 0 {
			status = http.StatusServiceUnavailable
		}
		g.w.Header().Set("Retry-After", retryAfter)
		return g.refuse(g.api.wholeType, status)
	}
	g.pace = newPacer()
	defer g.pace.stop()
	if g.res.stream {
		return g.stream(ctx)
	}
	return g.whole(ctx)
}

// stream writes the response step by step.
func (g *generation) stream(ctx context.Context) error {
	g.w.Header().Set("Content-Type", g.out.contentType())
	if g.api.noCache {
		g.w.Header().Set("Cache-Control", "no-cache")
	}
	var buf []byte
	if !g.stopsAt(0) {
		buf = g.out.appendOpening(buf)
	}
	if !g.headersWait() {
		if err := g.send(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	for k := range g.res.steps() {
		if err := g.pace.wait(ctx, g.gap(k)); err != nil {
			return err
		}
		if g.stopsAt(k) {
			return g.breakOff(ctx)
		}
		buf = g.out.appendOutput(buf, k)
		if g.faultAt(k) { // FaultMalformed, the one that does not stop
			buf = cutLastLine(buf)
		}
		if err := g.send(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if g.stopsAt(g.res.steps()) {
		return g.breakOff(ctx)
	}
	buf = g.out.appendFinish(buf)
	if g.opts.Fault != FaultNoDone {
		buf = g.out.appendTerminator(buf)
	}
	return g.send(buf)
}

// whole writes the response in one piece when its last step is due.
func (g *generation) whole(ctx context.Context) error {
	broken := g.stopsAt(g.res.steps())
	for k := range g.res.steps() {
		if err := g.pace.wait(ctx, g.gap(k)); err != nil {
			return err
		}
		if broken = broken || g.faultAt(k); g.faultAt(k) {
			break
		}
	}
	body := marshal(g.out.whole())
	if broken {
		switch g.opts.Fault {
		case FaultDie, FaultHang:
			return g.breakOff(ctx)
		case FaultError, FaultErrorDone, FaultCrash:
			return g.refuse(g.api.wholeType, http.StatusInternalServerError)
		default: // FaultEnd, FaultMalformed
			body = body[:len(body)/2]
		}
	}
	g.w.Header().Set("Content-Type", g.api.wholeType)
	_, err := g.w.Write(body)
	return err
}

// breakOff is where a fault ends the response.
func (g *generation) breakOff(ctx context.Context) error {
	switch g.opts.Fault {
	case FaultDie:
		panic(http.ErrAbortHandler)
	case FaultHang:
		<-ctx.Done()
		return ctx.Err()
	case FaultCrash, FaultError:
		if g.crashesFirst() {
			return g.refuse(jsonType, http.StatusInternalServerError)
		}
		return g.send(g.out.appendError(nil, g.message()))
	case FaultErrorDone:
		return g.send(g.out.appendTerminator(g.out.appendError(nil, failure)))
	default: // FaultEnd
		return nil
	}
}

// refuse answers with an HTTP error.
func (g *generation) refuse(contentType string, status int) error {
	return writeJSON(g.w, contentType, status, g.api.errorBody(status, g.message()))
}

// message is that of the error which the fault makes.
func (g *generation) message() string {
	switch {
	case g.opts.Fault != FaultCrash || !g.api.ollama:
		return failure
	case g.crashesFirst():
		return ollamaCrashEarly
	default:
		return ollamaCrash
	}
}

// crashesFirst reports whether the model dies before its first token.
func (g *generation) crashesFirst() bool { return g.opts.Fault == FaultCrash && g.opts.FaultAt == 0 }

// headersWait reports whether the headers of a stream wait for its first token.
func (g *generation) headersWait() bool {
	return g.api.ollama || g.opts.Fault == FaultSlowHeaders || g.crashesFirst()
}

// gap returns how long step k is due after what precedes it.
func (g *generation) gap(k int) time.Duration {
	if k == 0 {
		return g.opts.TTFT
	}
	return g.opts.Interval
}

// faultAt reports whether the fault is one that comes at token k.
func (g *generation) faultAt(k int) bool {
	return k == g.opts.FaultAt && (g.opts.Fault.stops() || g.opts.Fault == FaultMalformed)
}

// stopsAt reports whether a fault ends the response at token k.
func (g *generation) stopsAt(k int) bool { return k == g.opts.FaultAt && g.opts.Fault.stops() }

// send writes what one step has produced, and the headers before it.
func (g *generation) send(p []byte) error {
	if len(p) > 0 {
		if _, err := g.w.Write(p); err != nil {
			return err
		}
	}
	// Without a Flusher, as in a plain recorder, the response is whole at its end.
	if err := g.flusher.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// cutLastLine takes away the second half of the last line of p that is not
// empty, and with it the validity of that line's JSON.
func cutLastLine(p []byte) []byte {
	body := bytes.TrimRight(p, "\n")
	newlines := p[len(body):]
	start := bytes.LastIndexByte(body, '\n') + 1
	return append(body[:start+(len(body)-start)/2], newlines...)
}
