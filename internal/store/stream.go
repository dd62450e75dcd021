package store

import (
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// LogOf returns a log of package fanout, which must keep all its events, as one
// that a Writer copies. Nothing is copied on the way.
func LogOf(s *fanout.Stream) Log { return streamLog{s} }

type streamLog struct{ stream *fanout.Stream }

// Since implements Log.
func (l streamLog) Since(dst []event.Event, index, bytes int) []event.Event {
	cursor, err := l.stream.Open(index)
	if err != nil {
		return dst // it was dropped
	}
	batch := cursor.Read()
	for {
		_, ev, ok := batch.Next(0)
		if bytes -= len(ev.Text); !ok || (bytes < 0 && len(dst) > 0) {
			return dst
		}
		dst = append(dst, ev)
	}
}

// LocalLog is what a *fanout.Stream and a *fanout.Response have in common.
type LocalLog interface {
	Append(events []event.Event) error
	End(terminal *event.Event) bool
}

// SinkOf returns a log of package fanout as one that a Follower fills. lost may be
// told why it goes no further.
func SinkOf(log LocalLog, lost func(error)) Sink { return streamSink{log, lost} }

type streamSink struct {
	log  LocalLog
	lost func(error)
}

// Append implements Sink.
func (s streamSink) Append(events []event.Event) error {
	err := s.log.Append(events)
	if err != nil {
		s.lost(err)
	}
	return err
}

// End implements Sink.
func (s streamSink) End(terminal *event.Event) { s.log.End(terminal) }

// Lost implements Sink.
func (s streamSink) Lost(err error) { s.lost(err) }

// Interface guards
var (
	_ Log      = streamLog{}
	_ Sink     = streamSink{}
	_ LocalLog = (*fanout.Stream)(nil)
	_ LocalLog = (*fanout.Response)(nil)
)
