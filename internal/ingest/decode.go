package ingest

import (
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/observe"
	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// decode takes a piece of the body of a token stream.
func (p *Producer) decode(b []byte) (int, error) {
	p.Record.Received(len(b))
	events := p.reader.Feed(b)
	if p.opaque() {
		p.err = p.passHeld()
	} else {
		p.append(events, p.reader.Silent())
	}
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// append puts the events that the route emits into the log and lets the client
// have them. silent is how much output of the model came that is no event.
func (p *Producer) append(events []event.Event, silent int) {
	emitted := events[:0] // in place: the terminal event, if there is one, is the last
	var terminal *event.Event
	outputs := silent
	for i := range events {
		ev := &events[i]
		if ev.Kind.IsOutput() {
			outputs++
		}
		switch {
		case ev.Kind.IsTerminal():
			terminal = ev
		case p.Emits(ev.Kind):
			emitted = append(emitted, *ev)
		}
	}
	if outputs > 0 || terminal != nil {
		p.identify()
	}
	if len(emitted) > 0 {
		p.emitted = true
		p.Record.Logged(len(emitted))
		if err := p.Log.Append(emitted); err != nil {
			terminal = event.TerminalTooLarge
			p.Cancel(err)
		}
	}
	if terminal != nil {
		p.end(terminal)
	}
	written := len(emitted) > 0 || terminal != nil
	p.releaseEvents() // the log has copied them, and the client may take its time
	var at time.Duration
	switch {
	case written:
		at, p.err = p.Out.Deliver(p.Watch)
	case outputs > 0:
		at = p.Watch.Output()
	}
	p.Record.Output(outputs, at)
}

// releaseEvents gives the memory of decoded events back.
func (p *Producer) releaseEvents() {
	if p.reader != nil {
		p.reader.Release()
	}
}

// identify passes on what has become known of the backend.
func (p *Producer) identify() {
	if p.reader == nil {
		return
	}
	id := observe.Identity{Format: p.reader.Format(), Model: p.reader.Model(), ProviderID: p.reader.ResponseID()}
	if id == p.identity {
		return
	}
	p.identity = id
	p.Record.SetUsage(p.reader.Usage())
	p.Record.Identify(id)
	if p.Identified != nil {
		p.Identified(id)
	}
}

// end puts the terminal event into the log.
func (p *Producer) end(terminal *event.Event) {
	ev := *terminal
	p.terminal = &ev
	if p.Ended != nil {
		p.Ended(&ev)
	}
	p.Log.End(&ev)
	p.phase = finished
	if ev.Kind == event.Failed {
		p.Cancel(errLingered) // what it may still say is not needed
		return
	}
	p.startLinger()
}

// startLinger gives the upstream a moment to close the body by itself.
func (p *Producer) startLinger() {
	p.linger = time.AfterFunc(lingerTime, func() { p.Cancel(errLingered) })
}

// opaque reports whether the stream turned out to be none that we know.
func (p *Producer) opaque() bool { return p.reader.State() == provider.Opaque }
