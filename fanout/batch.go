package fanout

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// Batch is a part of a log, read once from its start to its end. It copies
// nothing: the texts of its events are slices of the log.
type Batch struct {
	last int // index of the event before the next one
	to   int // index of the last event
	at   mark
	text []byte
	lens []byte       // of the table
	runs []run        // from the run of the next event on
	end  *event.Event // terminal event, whose index is to+1; nil where it is not part of the batch

	// Skipped is how many events before the first one of the batch the reader
	// has not had and never will: they are no longer kept.
	Skipped int

	// Behind is how many events the reader lags. The newest Append does not
	// count, since nobody can have had it. BehindBytes is the text that is
	// still kept of them.
	Behind      int
	BehindBytes int
}

// Len is the number of events that Next has not returned yet.
func (b *Batch) Len() int {
	n := b.to - b.last
	if b.end != nil {
		n++
	}
	return n
}

// Bytes is how many bytes of text Next has not returned yet.
func (b *Batch) Bytes() int { return len(b.text) - b.at.text }

// Skip leaves out the output events that Next has not returned yet, so that
// only a terminal event is left. It returns how many events the reader misses
// by it, those of Skipped included.
func (b *Batch) Skip() int {
	missed := b.Skipped + b.to - b.last
	b.last, b.at.text, b.Skipped = b.to, len(b.text), 0
	return missed
}

// Next returns the next event and its index. With merge it returns as many
// events as one can stand for: one with all their text, and the index of the
// last of them. ok is false when the batch is at its end.
func (b *Batch) Next(merge bool) (index int, ev event.Event, ok bool) {
	if b.last == b.to {
		if b.end == nil {
			return 0, event.Event{}, false
		}
		ev, b.end = *b.end, nil
		b.last++
		b.to++
		return b.last, ev, true
	}
	first := b.last + 1
	if len(b.runs) > 1 && b.runs[1].first == first {
		b.runs = b.runs[1:]
	}
	r := &b.runs[0]
	start := b.at.text
	b.step(merge)
	ev = event.Event{Kind: r.kind, Choice: r.choice, Text: b.text[start:b.at.text:b.at.text]}
	if r.first == first {
		ev.Tool = r.tool
	} else {
		ev.Tool.Index = r.tool.Index
	}
	return b.last, ev, true
}

// step moves over the next event, with merge over the rest of its run.
func (b *Batch) step(merge bool) {
	switch {
	case !merge:
		b.at = next(b.lens, b.at)
		b.last++
	case len(b.runs) > 1:
		b.at = b.runs[1].at
		b.last = b.runs[1].first - 1
	default:
		b.at.text = len(b.text)
		b.last = b.to
	}
}
