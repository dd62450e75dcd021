package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	escaped "github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

func TestEncodeDecode(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		want := storetest.Sample(seed, 100)
		data, err := store.Encode([]byte("before"), 7, want)
		if err != nil {
			t.Fatal(err)
		}
		first, got, err := store.Decode(data[len("before"):])
		if err != nil || first != 7 {
			t.Fatalf("from %d, %v", first, err)
		}
		if a, b := marshal(t, got), marshal(t, want); !bytes.Equal(a, b) {
			t.Fatalf("got\n%s\nwant\n%s", a, b)
		}
	}
}

func marshal(t *testing.T, events []event.Event) []byte {
	t.Helper()
	for i := range events {
		if events[i].Text == nil {
			events[i].Text = []byte{}
		}
	}
	text, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A batch that was cut anywhere is not taken for a whole one, unless only the
// terminal event is missing, whose absence the index shows.
func TestDecodeCut(t *testing.T) {
	t.Parallel()
	events := storetest.Sample(4, 20)
	whole, err := store.Encode(nil, 1, events)
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := store.Encode(nil, 1, events[:20])
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		_, got, err := store.Decode(whole[:n])
		if n == len(outputs) {
			if err != nil || len(got) != 20 {
				t.Fatalf("without the terminal event: %d events, %v", len(got), err)
			}
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("%d bytes of %d: %d events, %v", n, len(whole), len(got), err)
		}
	}
}

// What Redis may hold that none of us wrote must not reach a client, where text
// is put between quotes as it is.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	encode := func(ev event.Event) []byte {
		data, err := store.Encode(nil, 1, []event.Event{ev})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	failed := func(upstream string) event.Event {
		return event.Event{Kind: event.Failed, Err: &event.Error{Upstream: []byte(upstream)}}
	}
	for name, data := range map[string][]byte{
		"nothing":                {},
		"another version":        append([]byte{2}, encode(event.Event{Kind: event.Text, Text: []byte("a")})[1:]...),
		"index 0":                {1, 0, 0},
		"a quotation mark":       encode(event.Event{Kind: event.Text, Text: []byte(`"`)}),
		"a line feed":            encode(event.Event{Kind: event.Text, Text: []byte("\n")}),
		"half a character":       encode(event.Event{Kind: event.Text, Text: []byte("\xe4")}),
		"no text":                encode(event.Event{Kind: event.Text}),
		"a kind that is unknown": {1, 1, 1, 99, 0, 1, 1, 'a'},
		"usage":                  {1, 1, 1, byte(event.Usage), 0, 1, 1, 'a'},
		"many lengths":           {1, 1, 1, 1, 0, 255, 255, 255, 255, 7},
		"a long text":            {1, 1, 1, 1, 0, 1, 255, 255, 255, 255, 7, 'a'},
		"many runs":              {1, 1, 255, 255, 3},
		"both ends":              append([]byte{1, 1, 0}, `{"result":{},"error":{}}`...),
		"an upstream on lines":   encode(failed("{\n}")),
		"an upstream in pieces":  encode(failed("{")),
		"an upstream text":       encode(failed(`"a"`)),
	} {
		if _, events, err := store.Decode(data); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, events, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for seed := range uint64(4) {
		data, err := store.Encode(nil, 1, storetest.Sample(seed, 10))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, events, err := store.Decode(data)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for i := range events {
			ev := &events[i]
			terminal := ev.Kind.IsTerminal() && i == len(events)-1
			if first < 1 || (!ev.Kind.IsOutput() && !terminal) || !escaped.Valid(ev.Text) {
				t.Fatalf("event %d from %d: %+v", i, first, ev)
			}
		}
		again, err := store.Encode(nil, first, events)
		if err != nil {
			t.Fatal(err)
		}
		_, twice, err := store.Decode(again)
		if err != nil || !bytes.Equal(marshal(t, events), marshal(t, twice)) {
			t.Fatalf("encoded again it is something else: %v", err)
		}
	})
}

func FuzzNotice(f *testing.F) {
	id := fanout.NewID()
	for _, kind := range []store.NoticeKind{store.Started, store.Said, store.Ended} {
		n := store.Notice{Kind: kind, ID: id, First: 1, Last: 2, Status: fanout.Broken, Model: "a b"}
		f.Add(string(n.Append([]byte("epoch.1 "))))
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := store.ParseMessage([]byte(text))
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := store.ParseMessage(n.Append([]byte(n.Position + " ")))
		if err != nil || again != n {
			t.Fatalf("%+v became %+v, %v", n, again, err)
		}
	})
}
