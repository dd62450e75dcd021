package loop_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

func FuzzFrame(f *testing.F) {
	f.Add([]byte("x"), 3)
	f.Add([]byte{}, 1)
	f.Add(bytes.Repeat([]byte("\r\n"), 8), 4096)
	f.Fuzz(func(t *testing.T, payload []byte, times int) {
		payload = bytes.Repeat(payload, max(times, 0)%5000)
		room := bytes.Repeat([]byte{'?'}, loop.HeadRoom)
		b, at, head := loop.Frame(append(room, payload...))
		if len(payload) == 0 {
			if len(b) != at {
				t.Fatalf("nothing is %q, which ends the body", b[at:])
			}
			return
		}
		if !bytes.HasPrefix(b[at+head:], payload) {
			t.Fatalf("the payload is not behind the first %d bytes", head)
		}
		var want bytes.Buffer
		if _, err := httputil.NewChunkedWriter(&want).Write(payload); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b[at:], want.Bytes()) {
			t.Fatalf("got %.80q, want %.80q", b[at:], want.Bytes())
		}
	})
}

// A handler that stays does not hold the buffers of net/http.
func TestBuffersAreReleased(t *testing.T) {
	buffers := bufio.NewReadWriter(bufio.NewReader(strings.NewReader("early")), bufio.NewWriter(io.Discard))
	if _, err := buffers.Reader.Peek(1); err != nil {
		t.Fatal(err)
	}
	if got := loop.Release(buffers); string(got) != "early" {
		t.Errorf("%q was read, got %q", "early", got)
	}
	if r, w := buffers.Reader.Size(), buffers.Writer.Size(); r != 0 || w != 0 {
		t.Errorf("buffers of %d and %d bytes are left", r, w)
	}
}
