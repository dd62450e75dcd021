package sse_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// transcript is a recording with the events that it must yield whatever its
// line ends and wherever it is cut.
type transcript struct {
	file  string
	body  []byte
	fresh func() sse.Splitter
	want  []event
}

// transcripts returns all recordings whose framing is of this package, with
// the events according to the reference algorithms.
func transcripts(t *testing.T) []transcript {
	t.Helper()
	recordings := corpus.Load(t)
	all := make([]transcript, 0, len(recordings))
	for _, rec := range recordings {
		tr := transcript{file: rec.File, body: rec.Body}
		ok := true
		switch filepath.Ext(rec.File) {
		case ".sse":
			tr.fresh = func() sse.Splitter { return sse.NewParser(large) }
			tr.want = referenceEvents(string(rec.Body), large)
		case ".ndjson":
			tr.fresh = func() sse.Splitter { return sse.NewLines(large) }
			tr.want = referenceLines(string(rec.Body), large)
		case ".json":
			tr.fresh = func() sse.Splitter { return sse.NewArray(large) }
			tr.want, ok = referenceElements(string(rec.Body), large)
		default:
			continue
		}
		if !ok || len(tr.want) == 0 {
			t.Fatalf("%s: %d events", rec.File, len(tr.want))
		}
		all = append(all, tr)
	}
	return all
}

// matches reports whether s returns the events of want, and no others, for the
// pieces.
func matches(s sse.Splitter, want []event, pieces ...[]byte) bool {
	i := 0
	drain := func() bool {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if i == len(want) || string(ev.Name) != want[i].name || string(ev.Data) != want[i].data {
				return false
			}
			i++
		}
		return true
	}
	for _, piece := range pieces {
		s.Feed(piece)
		if !drain() {
			return false
		}
	}
	s.Close()
	return drain() && i == len(want) && s.Err() == nil
}

func TestCorpusWholeAndByteByByte(t *testing.T) {
	for _, tr := range transcripts(t) {
		t.Run(tr.file, func(t *testing.T) {
			for _, pieces := range [][]string{{string(tr.body)}, byteByByte(string(tr.body))} {
				got, err := split(tr.fresh(), pieces...)
				if err != nil {
					t.Fatal(err)
				}
				wantEvents(t, got, tr.want)
			}
		})
	}
}

// TestCorpusSplit cuts every recording in two at every offset. A long one is
// taken apart into windows of a few events first, since the time for it grows
// with the square of its length; only windows that are long all the same, with
// an event of more than 24 KiB, are cut at some of their offsets.
func TestCorpusSplit(t *testing.T) {
	t.Parallel()
	for _, tr := range transcripts(t) {
		t.Run(tr.file, func(t *testing.T) {
			t.Parallel()
			for _, w := range windows(t, tr) {
				long := len(w.body) / (24 << 10)
				stride := 1 + 6*long*long
				for i := 0; i <= len(w.body); i += stride {
					if !matches(w.fresh(), w.want, w.body[:i], w.body[i:]) {
						t.Fatalf("other events when %.40q… is cut at %d", w.body, i)
					}
				}
			}
		})
	}
}

// windows takes a transcript apart where events end. A short one is one
// window.
func windows(t *testing.T, tr transcript) []transcript {
	t.Helper()
	const short, least = 4 << 10, 512
	if len(tr.body) <= short {
		return []transcript{tr}
	}
	var all []transcript
	rest := tr
	events, start := 0, 0
	s := tr.fresh()
	for i := range tr.body {
		s.Feed(tr.body[i : i+1])
		complete := drain(s)
		events += complete
		if size := i + 1 - start; complete > 0 && size >= least && len(tr.body)-start-size >= least {
			w := rest
			w.body, w.want = rest.body[:size], rest.want[:events]
			rest.body, rest.want = rest.body[size:], rest.want[events:]
			all = append(all, w)
			events, start = 0, i+1
		}
	}
	return append(all, rest)
}

// TestCorpusLineEnds rewrites the recordings in ways that change no event.
func TestCorpusLineEnds(t *testing.T) {
	mixed := func(s string) string {
		ends := []string{"\n", "\r\n", "\r", "\r", "\r\n"} // no CR, LF, which is one end
		var b strings.Builder
		for i, line := range strings.Split(s, "\n") {
			if i > 0 {
				b.WriteString(ends[i%len(ends)])
			}
			b.WriteString(line)
		}
		return b.String()
	}
	for _, tr := range transcripts(t) {
		if filepath.Ext(tr.file) != ".sse" {
			continue
		}
		t.Run(tr.file, func(t *testing.T) {
			lf := strings.ReplaceAll(string(tr.body), "\r\n", "\n")
			for name, body := range map[string]string{
				"LF":           lf,
				"CRLF":         strings.ReplaceAll(lf, "\n", "\r\n"),
				"CR":           strings.ReplaceAll(lf, "\n", "\r"),
				"mixed":        mixed(lf),
				"without":      strings.TrimRight(lf, "\n"),
				"with a mark":  "\ufeff" + lf,
				"without room": strings.ReplaceAll(lf, "\ndata: {", "\ndata:{"),
			} {
				cuts := [][]string{{body}}
				if name == "mixed" {
					cuts = append(cuts, byteByByte(body))
				}
				for _, pieces := range cuts {
					got, err := split(tr.fresh(), pieces...)
					if err != nil {
						t.Fatal(name, err)
					}
					if !slices.Equal(got, tr.want) {
						t.Fatalf("other events: %s", name)
					}
				}
			}
		})
	}
}

// TestCorpusLeadingSpace holds the reading of a line that begins with a space
// to the recorded answer: no client takes it for data.
func TestCorpusLeadingSpace(t *testing.T) {
	const file = "openrouter/kimi-leading-space.sse"
	for _, tr := range transcripts(t) {
		if tr.file != file {
			continue
		}
		got, err := split(tr.fresh(), string(tr.body))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(tr.body, []byte("data: "))
		if len(got) != lines-1 || !json.Valid([]byte(got[0].data)) || !strings.Contains(got[0].data, "llm_version") {
			t.Fatalf("%d events of %d lines, the first %q", len(got), lines, got[0].data)
		}
		return
	}
	t.Fatal("no " + file)
}
