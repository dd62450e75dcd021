package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// compress returns a writer of a content coding whose Flush lets everything so
// far be read.
func compress(coding string, w io.Writer) interface {
	io.WriteCloser
	Flush() error
} {
	if coding == "gzip" {
		return gzip.NewWriter(w)
	}
	zw, err := zstd.NewWriter(w)
	if err != nil {
		panic(err)
	}
	return zw
}

// A stream that is compressed although we asked for it as it is: decoded as it
// comes, each event at its time (ai-gateway#1894, #1927, opencodex#115).
func TestCompressedStreams(t *testing.T) {
	for _, coding := range []string{"gzip", "zstd"} {
		t.Run(coding, func(t *testing.T) {
			next := make(chan string)
			c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				rig.EventStream(w)
				w.Header().Set("Content-Encoding", coding)
				zw := compress(coding, w)
				for piece := range next {
					_, _ = io.WriteString(zw, piece)
					_ = zw.Flush()
					_ = http.NewResponseController(w).Flush()
				}
				_ = zw.Close()
			})
			go func() { next <- rig.Chunk("t0") }()
			resp := post(`{}`).do(t, c)
			equal(t, "Content-Encoding", resp.Header.Get("Content-Encoding"), "")
			fr := rig.NewFrameReader(resp.Body)
			for i := range 5 {
				f, err := fr.Next()
				equal(t, "frame", fmt.Sprint(f.Data, err), fmt.Sprintf(`{"text":"t%d"}<nil>`, i))
				if i < 4 {
					next <- rig.Chunk(fmt.Sprintf("t%d", i+1))
				}
			}
			next <- rig.Stop
			close(next)
			f, err := fr.Next()
			equal(t, "end", fmt.Sprint(f.Event, err), "done<nil>")
		})
	}
}

// Cut or broken, compressed is no different.
func TestBrokenCompression(t *testing.T) {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write([]byte(rig.Chunk("x")))
	_ = zw.Flush()
	for name, tc := range map[string]struct{ body, code string }{
		"cut":     {packed.String(), "upstream_truncated"},
		"garbage": {packed.String() + "garbage, garbage", "invalid_upstream"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				rig.EventStream(w)
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, tc.body)
			})
			a := rig.ReadAnswer(t, post(`{}`).do(t, c).Body)
			if a.Text != "x" || a.Error == nil || a.Error.Code != tc.code {
				t.Errorf("%q %+v", a.Text, a.Error)
			}
		})
	}
}
