// Package compress decodes bodies that come in pieces from the content codings
// that backends and clients use although a stream is better off without.
//
// The invariant: a Decoder gives out what a piece is decoded to before it takes
// the next, and runs in no goroutine of its own.
package compress

import (
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds the memory of a zstd decoder, in bytes. It is what every
// decoder has to support (RFC 8878, section 3.1.1.1.2).
const maxZstdWindow = 8 << 20

// readers are the content codings that are known, by their names in lower case.
var readers = map[string]func(io.Reader) (io.Reader, error){
	"gzip":   func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
	},
}

// Decoder decodes a compressed body. The decompressor, which reads, runs as a
// coroutine of the goroutine that writes: never at the same time.
type Decoder struct {
	in   []byte
	end  bool
	err  error // of the decompressor; io.EOF after a whole body
	next func() (struct{}, bool)
	stop func()
}

var errStopped = errors.New("compress: stopped")

// NewDecoder returns a Decoder for the value of a Content-Encoding field, which
// gives what it has decoded to out; nil where the coding is not known. It must
// be stopped.
func NewDecoder(coding string, out func([]byte)) *Decoder {
	open := readers[strings.ToLower(strings.TrimSpace(coding))]
	if open == nil {
		return nil
	}
	d := new(Decoder)
	d.next, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		decoder, err := open(pieces{d, yield})
		buf := make([]byte, 4<<10)
		for err == nil {
			var n int
			if n, err = decoder.Read(buf); n > 0 {
				out(buf[:n])
			}
		}
		if closer, ok := decoder.(interface{ Close() }); ok {
			closer.Close()
		}
		d.err = err
	})
	return d
}

// Write decodes a piece. The error is that of the body, unless it has come to
// its end.
func (d *Decoder) Write(p []byte) (int, error) {
	d.in = p
	d.next()
	if d.err != nil && !errors.Is(d.err, io.EOF) {
		return 0, d.err
	}
	return len(p), nil
}

// Close decodes what is left, and stops the Decoder. The error says that the body
// is not whole.
func (d *Decoder) Close() error {
	d.end = true
	d.next()
	d.stop()
	if errors.Is(d.err, io.EOF) {
		return nil
	}
	return d.err
}

// Stop gives up what the Decoder holds. It may be called more than once.
func (d *Decoder) Stop() { d.stop() }

// pieces is what the decompressor reads from: where it has nothing, it is the
// writer's turn.
type pieces struct {
	d     *Decoder
	yield func(struct{}) bool
}

// Read implements io.Reader. At the end of the body it returns io.EOF: a
// decompressor that is in the middle of a member makes an error of that by
// itself, and one that looks for another member finds that there is none.
func (p pieces) Read(b []byte) (int, error) {
	for len(p.d.in) == 0 {
		if p.d.end {
			return 0, io.EOF
		}
		if !p.yield(struct{}{}) {
			return 0, errStopped
		}
	}
	n := copy(b, p.d.in)
	p.d.in = p.d.in[n:]
	return n, nil
}

// Interface guards
var _ io.WriteCloser = (*Decoder)(nil)
