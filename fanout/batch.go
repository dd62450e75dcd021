package fanout

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// Batch is a part of a log, read once from its start to its end. It copies
// nothing: the texts of its events are slices of the log.
type Batch struct {
	last  int // index of the event before the next one
	to    int // index of the last event
	at    mark
	text  []byte
	lens  []byte // of the table
	marks []mark // likewise; marks[k] is the place after the event base+k*markEvery
	base  int
	runs  []run        // from the run of the next event on
	end   *event.Event // terminal event, whose index is to+1; nil where it is not part of the batch

	// Skipped is how many events before the first one of the batch the reader
	// has not had and never will: they are no longer kept.
	Skipped int

	// Behind is how many events the reader lags: in the log, or in a channel
	// where it is the channel that is read. The newest Append does not count,
	// since no reader can have had it. BehindBytes is the text that is
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

// Next returns the next event and its index. Where merge is more than 0, it
// returns as many events as one can stand for and merge bytes of text hold, but
// at least one: an event with all their text, and the index of the last of
// them. The text counts as it is written, escaped; it is cut between events
// only. ok is false when the batch is at its end.
func (b *Batch) Next(merge int) (index int, ev event.Event, ok bool) {
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

// step moves over the next event and, with merge, over those after it in its
// run that fit as well.
func (b *Batch) step(merge int) {
	if merge <= 0 {
		b.last, b.at = b.last+1, next(b.lens, b.at)
		return
	}
	start := b.at.text
	if last, end := b.rest(); end.text-start <= merge {
		b.last, b.at = last, end
		return
	}
	b.last, b.at = b.last+1, next(b.lens, b.at)
	b.stepTo(max(b.at.text, start+merge))
}

// stepTo moves over the events of the current run whose texts end at an offset
// or before it.
func (b *Batch) stepTo(end int) {
	last, _ := b.rest()
	for k := (b.last-b.base)/markEvery + 1; k < len(b.marks) && b.base+k*markEvery <= last && b.marks[k].text <= end; k++ {
		b.last, b.at = b.base+k*markEvery, b.marks[k]
	}
	for b.last < last {
		after := next(b.lens, b.at)
		if after.text > end {
			return
		}
		b.last, b.at = b.last+1, after
	}
}

// rest returns the index of the last event of the current run that is part of
// the batch, and the place after it. Nothing is read from the place after the
// last event, so that of its length table is not known there.
func (b *Batch) rest() (last int, after mark) {
	if len(b.runs) > 1 && b.runs[1].first <= b.to {
		return b.runs[1].first - 1, b.runs[1].at
	}
	return b.to, mark{text: len(b.text), lens: b.at.lens}
}
