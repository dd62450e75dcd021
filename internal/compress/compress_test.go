package compress_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-llmstream/caddy-llmstream/internal/compress"
)

func compressed(t *testing.T, coding, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if coding == "zstd" {
		zw, err := zstd.NewWriter(&buf)
		if err != nil {
			t.Fatal(err)
		}
		w = zw
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// A whole body has a good end, also one of several members, however it is cut;
// every shorter one has not.
func TestDecoder(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"gzip", "x-gzip", "ZSTD"} {
		text := strings.Repeat("Hello, world. ", 1000)
		one := compressed(t, strings.ToLower(coding), text)
		for _, size := range []int{1, 7, 1 << 20} {
			if got, err := decode(coding, append(bytes.Clone(one), one...), size); got != text+text || err != nil {
				t.Errorf("%s in pieces of %d: %d bytes, %v", coding, size, len(got), err)
			}
		}
		for n := 1; n < len(one); n++ {
			if _, err := decode(coding, one[:n], 1<<20); err == nil {
				t.Errorf("%s: %d bytes of %d are whole", coding, n, len(one))
			}
		}
	}
	if compress.NewDecoder("br", nil) != nil {
		t.Error("br is decoded")
	}
}

func decode(coding string, body []byte, size int) (string, error) {
	var got bytes.Buffer
	d := compress.NewDecoder(coding, func(b []byte) { got.Write(b) })
	defer d.Stop()
	for piece := range slices.Chunk(body, size) {
		if _, err := d.Write(piece); err != nil {
			return got.String(), err
		}
	}
	err := d.Close()
	return got.String(), err
}
