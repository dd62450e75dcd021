package relay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strconv"
	"testing"
)

// FuzzBodyScan checks that what a request body is found to ask does not depend on
// where it is cut, nor on its content coding, and is what a parser finds.
func FuzzBodyScan(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"n":2}`, `{"stream":false,"stream":true}`, `{"stream":5}`,
		`{"generationConfig":{"candidateCount":2},"x":[{"stream":true}]}`, `{"model":"a\"b","n":-1}`, `{"n":99999999999999999999}`,
		`[{"stream":true}]`, ``, `{`, "{\"model\":\"\xff\"}", `{"a":"\"stream\":true"}`, "\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd\x00\xf8",
	} {
		f.Add([]byte(body), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint8) {
		want := askedOf(body, "")
		s := newBodyScan("")
		for rest := body; len(rest) > 0; {
			n := min(len(rest), int(cut)%7+1)
			s.Write(rest[:n])
			rest = rest[n:]
		}
		s.end()
		if s.said != want {
			t.Errorf("in pieces of %d, %q asks %+v, not %+v", cut%7+1, body, s.said, want)
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(body)
		_ = w.Close()
		if got := askedOf(zipped.Bytes(), "gzip"); got != want {
			t.Errorf("in gzip, %q asks %+v, not %+v", body, got, want)
		}
		askedOf(body, "gzip")
		askedOf(body, "zstd")
		checkAsked(t, body, want)
	})
}

// checkAsked compares with a parser, where the body is an object in which nothing
// is escaped or stands twice.
func checkAsked(t *testing.T, body []byte, got asked) {
	t.Helper()
	var members map[string]json.RawMessage
	if bytes.ContainsRune(body, '\\') || json.Unmarshal(body, &members) != nil || members == nil {
		return
	}
	for _, name := range []string{"stream", "model", "n"} {
		if bytes.Count(body, []byte(`"`+name+`"`)) > 1 {
			return
		}
	}
	stream := unsaid
	switch string(members["stream"]) {
	case "true":
		stream = asksForStream
	case "false":
		stream = asksForWhole
	}
	if got.stream != stream {
		t.Errorf("%q: stream is %v, not %v", body, got.stream, stream)
	}
	n, err := strconv.Atoi(string(members["n"]))
	if err != nil || n < 0 {
		n = 0
	}
	others := bytes.Contains(body, []byte("candidate")) || bytes.Contains(body, []byte("generations"))
	if !others && got.choices != n {
		t.Errorf("%q: %d choices, not %d", body, got.choices, n)
	}
}
