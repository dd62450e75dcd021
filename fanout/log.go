package fanout

import (
	"slices"
	"sort"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// history is the log itself, without locks. The texts of all its events lie
// behind one another in text, and table says where each begins. What else an
// event has, it shares with its neighbours: that is a run.
//
// What is stored never changes while a reader may hold a slice of it; only
// recycle, which is for a log with one reader, writes over it.
type history struct {
	base  int // index of the last event that is no longer here
	text  []byte
	table table
	runs  []run
	names int // bytes of the ids and names of tool calls in runs
}

// run is a sequence of events that differ in nothing but their texts, so that
// any part of it is one event with one text.
type run struct {
	first  int  // index of its first event
	at     mark // place of its first event
	kind   event.Kind
	choice int
	tool   event.Tool // ID and Name belong to the first event of the run
}

// runSize is the memory of a run, in bytes, but for the strings of its tool.
const runSize = 80

// continues reports whether an event can be part of the run r.
func (r *run) continues(ev *event.Event) bool {
	return r.kind == ev.Kind && r.choice == ev.Choice && r.tool.Index == ev.Tool.Index &&
		ev.Tool.ID == "" && ev.Tool.Name == ""
}

// head is the index of the last event.
func (h *history) head() int { return h.base + h.table.count }

// append stores an output event.
func (h *history) append(ev *event.Event) {
	at := mark{text: len(h.text), lens: len(h.table.lens)}
	h.table.add(at.text, len(ev.Text))
	h.text = append(h.text, ev.Text...)
	if n := len(h.runs); n == 0 || !h.runs[n-1].continues(ev) {
		h.runs = append(h.runs, run{first: h.head(), at: at, kind: ev.Kind, choice: ev.Choice, tool: ev.Tool})
		h.names += len(ev.Tool.ID) + len(ev.Tool.Name)
	}
}

// since makes b what came after the event with the index n; n is at least base
// and at most head, and b is empty.
func (h *history) since(b *Batch, n int) { h.between(b, n, h.head()) }

// between is since for the events up to and including the one with the index
// to, which is at least n and at most head.
func (h *history) between(b *Batch, n, to int) {
	b.last, b.to = n, to
	if n == to {
		return
	}
	i := len(h.runs) - 1
	if h.runs[i].first > n+1 {
		i = sort.Search(i, func(i int) bool { return h.runs[i].first > n+1 }) - 1
	}
	b.at = h.table.seek(n - h.base)
	b.text, b.lens, b.runs = h.text, h.table.lens, h.runs[i:]
	if to < h.head() {
		b.text = b.text[:h.table.seek(to-h.base).text]
	}
	b.marks, b.base = h.table.marks, h.base
}

// used is the memory that the events take, in bytes.
func (h *history) used() int {
	return len(h.text) + len(h.table.lens) + len(h.table.marks)*markSize + len(h.runs)*runSize + h.names
}

// size is the memory that the log holds, in bytes, with its room for growth.
func (h *history) size() int {
	return cap(h.text) + cap(h.table.lens) + cap(h.table.marks)*markSize + cap(h.runs)*runSize + h.names
}

// recycle forgets all events and uses their memory again. No Batch of this log
// may be in use.
func (h *history) recycle() {
	if h.size() > recycleLimit {
		*h = history{base: h.head()}
		return
	}
	h.base = h.head()
	h.text = h.text[:0]
	h.table.reset()
	h.runs = h.runs[:0]
	h.names = 0
}

// recycleLimit is how much memory an emptied log keeps for its next events.
const recycleLimit = 4 << 10

// trim forgets all but the last n events, and of those all but the last
// windowText bytes or the last event; but not before there is a quarter of that to
// forget, so that an event is copied four times at most. A reader that is stuck
// holds what was there when it began to write, beside that.
func (h *history) trim(n int) {
	if h.table.count <= n+n/4 && len(h.text) <= windowText+windowText/4 {
		return
	}
	first := max(0, h.table.count-n)
	for at := h.table.seek(first); first < h.table.count-1 && len(h.text)-at.text > windowText; first++ {
		at = next(h.table.lens, at)
	}
	if first > 0 {
		h.forget(h.base + first)
	}
}

// windowText is how many bytes of text a trimmed log keeps.
const windowText = 256 << 10

// forget drops the events up to and including n, without touching what
// readers may hold.
func (h *history) forget(n int) {
	var rest Batch
	h.since(&rest, n)
	*h = history{base: n, text: make([]byte, 0, rest.Bytes()+rest.Bytes()/4)}
	h.table.lens = make([]byte, 0, rest.Len()+rest.Len()/4)
	for _, ev, ok := rest.Next(0); ok; _, ev, ok = rest.Next(0) {
		h.append(&ev)
	}
}

// compact gives back the room that was kept for growth.
func (h *history) compact() {
	h.text = slices.Clip(slices.Clone(h.text))
	h.table.lens = slices.Clip(slices.Clone(h.table.lens))
	h.table.marks = slices.Clip(slices.Clone(h.table.marks))
	h.runs = slices.Clip(slices.Clone(h.runs))
}
