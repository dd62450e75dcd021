package sse_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/corpus"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// frame puts a frame together. headers are names and string values in turns.
func frame(payload string, headers ...string) string {
	var h []byte
	for pair := range slices.Chunk(headers, 2) {
		name, value := pair[0], pair[1]
		h = append(h, byte(len(name)))
		h = append(h, name...)
		h = append(h, 7)
		h = binary.BigEndian.AppendUint16(h, uint16(len(value)))
		h = append(h, value...)
	}
	return rawFrame(payload, string(h))
}

// rawFrame is frame with headers as they are to be sent.
func rawFrame(payload, headers string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(headers)+len(payload)+16))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

func eventFrame(name, payload string) string {
	return frame(payload, ":event-type", name, ":content-type", "application/json", ":message-type", "event")
}

func newFrames(maxEvent int) sse.Splitter { return sse.NewFrames(maxEvent) }

func TestFrames(t *testing.T) {
	t.Parallel()
	stream := eventFrame("messageStart", `{"role":"assistant"}`) +
		eventFrame("empty", "") +
		frame("no headers") +
		rawFrame("all kinds", "\x01a\x00\x01b\x01\x01c\x02x\x01d\x03xx\x01e\x04xxxx\x01f\x05xxxxxxxx"+
			"\x01g\x06\x00\x03abc\x01h\x08xxxxxxxx\x01i\x09xxxxxxxxxxxxxxxx\x0b:event-type\x07\x00\x04last") +
		frame(`{"message":"slow down"}`, ":exception-type", "throttlingException", ":message-type", "exception") +
		frame(` { } `, ":exception-type", "bare", ":message-type", "exception") +
		frame(`no "JSON"`, ":exception-type", "text", ":message-type", "exception") +
		frame("", ":message-type", "error", ":error-code", "InternalError", ":error-message", "it \"broke\"")
	want := []event{
		{name: "messageStart", data: `{"role":"assistant"}`},
		{name: "empty", data: ""},
		{name: "", data: "no headers"},
		{name: "last", data: "all kinds"},
		{name: "error", data: `{"type":"throttlingException","message":"slow down"}`},
		{name: "error", data: `{"type":"bare"}`},
		{name: "error", data: `{"type":"text","message":"no \"JSON\""}`},
		{name: "error", data: `{"type":"InternalError","message":"it \"broke\""}`},
	}
	for _, pieces := range [][]string{{stream}, byteByByte(stream)} {
		got, err := split(newFrames(large), pieces...)
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, got, want)
	}
	for i := range stream {
		if !matches(newFrames(large), want, []byte(stream[:i]), []byte(stream[i:])) {
			t.Fatalf("other events when cut at %d", i)
		}
	}
}

func TestCorruptFramesEndTheStream(t *testing.T) {
	t.Parallel()
	good := eventFrame("a", "1")
	for name, bad := range map[string]string{
		"prelude":               "\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"text":                  "data: {\"choices\":[]}\n\n",
		"payload":               strings.Replace(eventFrame("b", "payload"), "payload", "payloat", 1),
		"checksum":              good[:len(good)-1] + string(good[len(good)-1]^1),
		"no room for headers":   string(withChecksum("\x00\x00\x00\x10\x00\x00\x00\x01")) + "\x00\x00\x00\x00",
		"huge headers":          string(withChecksum("\x00\x00\x00\x10\xff\xff\xff\xff")) + "\x00\x00\x00\x00",
		"no length":             string(withChecksum("\x00\x00\x00\x00\x00\x00\x00\x00")),
		"header name too long":  rawFrame("x", "\xffa"),
		"header without value":  rawFrame("x", "\x01a\x07\x00"),
		"header value too long": rawFrame("x", "\x01a\x07\x00\x02b"),
		"header of no kind":     rawFrame("x", "\x01a\x0a"),
	} {
		for _, pieces := range [][]string{{good + bad + good}, byteByByte(good + bad + good)} {
			got, err := split(newFrames(large), pieces...)
			if !errors.Is(err, sse.ErrCorruptFrame) || len(got) != 1 {
				t.Errorf("%s in %d pieces: %q, %v", name, len(pieces), got, err)
			}
		}
	}
}

// withChecksum adds the checksum of a prelude.
func withChecksum(lengths string) []byte {
	return binary.BigEndian.AppendUint32([]byte(lengths), crc32.ChecksumIEEE([]byte(lengths)))
}

func TestFramesUpToTheLimitPass(t *testing.T) {
	t.Parallel()
	body := eventFrame("a", strings.Repeat("x", 1000))
	for limit, want := range map[int][]event{
		len(body):     {{name: "a", data: strings.Repeat("x", 1000)}},
		len(body) - 1: {{name: "a", reduced: true}},
	} {
		for _, pieces := range [][]string{{body}, byteByByte(body)} {
			got, err := split(newFrames(limit), pieces...)
			if err != nil {
				t.Errorf("limit %d: %v", limit, err)
			}
			wantEvents(t, got, want)
		}
	}
}

func TestFrameThatIsCutOffIsDropped(t *testing.T) {
	t.Parallel()
	stream := eventFrame("a", "1") + eventFrame("b", "2")
	for i := range len(stream) {
		got, err := split(newFrames(large), stream[:i])
		if err != nil || len(got) != i/(len(stream)/2) {
			t.Fatalf("first %d of %d bytes: %q, %v", i, len(stream), got, err)
		}
	}
	f := sse.NewFrames(large)
	f.Close()
	f.Feed([]byte(stream))
	if _, ok := f.Next(); ok {
		t.Error("an event after Close")
	}
}

func TestIsFrame(t *testing.T) {
	t.Parallel()
	good := eventFrame("a", "1")
	for b, want := range map[string]bool{good: true, good[:12]: true, good[:11]: false, "data: {\"a\":1}": false, "": false} {
		if sse.IsFrame([]byte(b)) != want {
			t.Errorf("%q: %v", b, !want)
		}
	}
}

func TestFramesKeepAndAllocateLittle(t *testing.T) {
	body := []byte(eventFrame("contentBlockDelta", strings.Repeat("x", 200)))
	for _, pieces := range [][][]byte{{body}, {body[:5], body[5:150], body[150:]}} {
		f, events := newFrames(large), 0
		allocs := testing.AllocsPerRun(100, func() {
			for _, piece := range pieces {
				f.Feed(piece)
				events += drain(f)
			}
		})
		if allocs != 0 || events != 101 {
			t.Errorf("%v allocations an event in %d pieces, %d events", allocs, len(pieces), events)
		}
	}
	f := newFrames(large)
	f.Feed(body)
	ev, _ := f.Next()
	body[len(body)-5] = '!'
	if !bytes.HasSuffix(ev.Data, []byte("x!")) {
		t.Errorf("a copy: %q", ev.Data)
	}
	big := []byte(eventFrame("a", strings.Repeat("x", large-100)))
	f = newFrames(large)
	for _, b := range big {
		f.Feed([]byte{b})
		ev, _ = f.Next()
	}
	if size, capacity := sse.Held(f); len(ev.Data) != large-100 || strings.Trim(string(ev.Data), "x") != "" || size != 0 || capacity > 8<<10 {
		t.Errorf("an event of %d bytes, then %d held in %d", len(ev.Data), size, capacity)
	}
}

// TestFramesOfRecordings takes the recordings apart in the plainest way and
// compares.
func TestFramesOfRecordings(t *testing.T) {
	t.Parallel()
	for _, rec := range corpus.Load(t, "bedrock-converse", "bedrock-invoke") {
		if filepath.Ext(rec.File) != ".eventstream" {
			t.Fatalf("%s is of an unknown framing", rec.File)
		}
		var want []string
		for rest := rec.Body; len(rest) >= 16; {
			n := int(binary.BigEndian.Uint32(rest))
			if n > len(rest) {
				break
			}
			headers := int(binary.BigEndian.Uint32(rest[4:]))
			want = append(want, string(rest[12+headers:n-4]))
			rest = rest[n:]
		}
		for _, pieces := range [][]string{{string(rec.Body)}, byteByByte(string(rec.Body))} {
			got, err := split(newFrames(large), pieces...)
			if err != nil || len(got) != len(want) {
				t.Fatalf("%s: %d events, want %d, %v", rec.File, len(got), len(want), err)
			}
			for i, ev := range got {
				if ev.name != "error" && ev.data != want[i] {
					t.Fatalf("%s: event %d is %q, want %q", rec.File, i, ev.data, want[i])
				}
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut, limit uint) {
		fuzzFrames(t, data, cut, limit)
		// A fuzzer does not find checksums. So the same with data as a payload,
		// and with data as the headers.
		fuzzFrames(t, []byte(eventFrame("a", string(data))), cut, limit)
		fuzzFrames(t, []byte(rawFrame("x", string(data))), cut, limit)
	})
}

// fuzzFrames is fuzzSplit for frames, whose errors are longer than their
// payloads.
func fuzzFrames(t *testing.T, data []byte, cut, limit uint) {
	t.Helper()
	at := int(cut % uint(len(data)+1))
	maxEvent := int(limit%1024) + 1
	stream := string(data)
	want, wantErr := split(newFrames(maxEvent), stream)
	for name, pieces := range map[string][]string{"cut in two": {stream[:at], stream[at:]}, "byte by byte": byteByByte(stream)} {
		got, err := split(newFrames(maxEvent), pieces...)
		if !errors.Is(err, wantErr) {
			t.Fatalf("%q %s: %v, whole: %v", data, name, err, wantErr)
		}
		wantEvents(t, got, want)
	}
	f := newFrames(maxEvent)
	for i := range data {
		f.Feed(data[i : i+1])
		drain(f)
		if size, capacity := sse.Held(f); size > maxEvent+sse.FramePrelude || capacity > 2*maxEvent+32 {
			t.Fatalf("%d bytes held in %d, the limit is %d", size, capacity, maxEvent)
		}
	}
}
