package fanout

import (
	"slices"
	"sort"

	"github.com/caddy-llmstream/caddy-llmstream/provider"
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
}

// run is a sequence of events that differ in nothing but their texts, so that
// any part of it is one event with one text.
type run struct {
	first  int // index of its first event
	kind   provider.Kind
	choice int
	tool   provider.Tool // ID and Name belong to the first event of the run
}

// continues reports whether an event can be part of the run r.
func (r *run) continues(ev *provider.Event) bool {
	return r.kind == ev.Kind && r.choice == ev.Choice && r.tool.Index == ev.Tool.Index &&
		ev.Tool.ID == "" && ev.Tool.Name == ""
}

// head is the index of the last event.
func (h *history) head() int { return h.base + h.table.count }

// append stores an output event and returns its index.
func (h *history) append(ev *provider.Event) int {
	h.table.add(len(h.text), len(ev.Text))
	h.text = append(h.text, ev.Text...)
	index := h.head()
	if n := len(h.runs); n == 0 || !h.runs[n-1].continues(ev) {
		h.runs = append(h.runs, run{first: index, kind: ev.Kind, choice: ev.Choice, tool: ev.Tool})
	}
	return index
}

// since returns what came after the event with the index n; n is at least base
// and at most head.
func (h *history) since(n int) Batch {
	if n == h.head() {
		return Batch{last: n, to: n}
	}
	i := sort.Search(len(h.runs), func(i int) bool { return h.runs[i].first > n+1 }) - 1
	return Batch{
		last: n, to: h.head(),
		at: h.table.seek(n - h.base), text: h.text, table: h.table,
		runs: h.runs[i:],
	}
}

// size is the memory that the log holds, in bytes.
func (h *history) size() int {
	return cap(h.text) + h.table.bytes() + len(h.runs)*runSize
}

// runSize is what a run costs, with a call's id and name.
const runSize = 128

// recycle forgets all events and uses their memory again. No Batch of this log
// may be in use.
func (h *history) recycle() {
	h.base = h.head()
	h.text = h.text[:0]
	h.table.reset()
	h.runs = h.runs[:0]
	if cap(h.text) > recycleLimit {
		h.text = nil
	}
}

// recycleLimit is how much memory an emptied log keeps for its next events.
const recycleLimit = 4 << 10

// forget drops the events up to and including n, without touching what
// readers may hold.
func (h *history) forget(n int) {
	if n <= h.base {
		return
	}
	rest := h.since(n)
	*h = history{base: n}
	for _, ev, ok := rest.Next(false); ok; _, ev, ok = rest.Next(false) {
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
